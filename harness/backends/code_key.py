"""`code_key`: the key of the machine code that LLVM makes of a program.

Emitting code takes a third of a build, and the program that runs is emitted once more when it is linked, so
the key is that of what code generation is given: LLVM's IR after optimization. Names of values, comments
and debug information, which change no instruction, are left out; metadata that code generation reads
(aliases, branch weights, loops) counts where it is used. So equal keys are equal machine code. On 600 programs
of random walks the converse held too; where it does not, one code is measured twice.

Options of the compiler are another matter: some are read by code generation alone, and many change the IR
and no instruction. A program with options has the key of the one without if their assembly is the same, else
that of its assembly: turning a switch that does nothing is no new code.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from functools import lru_cache
from typing import Any

import tvm

from tirgym.harness.backends.llvm_options import compiler_with, options_of, options_text
from tirgym.harness.target import Target

__all__ = ["assembly_key", "code_key", "llvm_ir_key"]

_DEBUG_LINE = re.compile(
    r"^\s*\.(loc|file|cfi_\w+|Ltmp|ident)\b|^\.L(tmp|func_(begin|end))\d+:|^\s*#"
)

_GLOBAL = re.compile(r"\n@.*")
"""with the text of strings, in which a name is no name"""
_NOISE = tuple(map(re.compile, (r", !dbg !\d+", r" !dbg !\d+", r"\n *#dbg_.*", r"\n;.*")))
"""debug information and comments; each begins with plain text, which is found quickly"""
_LABEL = re.compile(r'\n("[^"\n]*"|[-\w$.]+):.*')
_LOCAL = re.compile(r'%(?:"[^"]*"|[-\w$.]+)')
_USE = re.compile(r"!(\d+)")
_NODE = re.compile(r"^!(\d+) = (.*)$", re.MULTILINE)
_PART = re.compile(r'"(?P<address>0x[0-9a-f]+)|!(?P<node>\d+)')


class _Nodes:
    """Metadata, written out. TVM names the classes of aliases by addresses, which only tell them apart."""

    def __init__(self, text: str) -> None:
        self._nodes = dict(_NODE.findall(text))
        self._written: dict[str, str] = {}
        self._addresses: dict[str, str] = {}

    def written(self, number: str) -> str:
        """A node with all that it refers to; "" for debug information."""
        if number not in self._written:
            self._written[number] = "itself"  # a node that is distinct refers to itself
            node = self._nodes[number]
            debug = node.removeprefix("distinct ").startswith("!DI")
            self._written[number] = "" if debug else _PART.sub(self._part, node)
        return self._written[number]

    def _part(self, found: re.Match[str]) -> str:
        number, address = found["node"], found["address"]
        if number is not None:
            return self.written(number)
        return '"' + self._addresses.setdefault(address, f"class{len(self._addresses)}")


def llvm_ir_key(text: str) -> str:
    """16 hex digits of a module's optimized LLVM IR, which names the CPU that it is for."""
    body, _, metadata = text.partition("\n!")
    strings = "".join(_GLOBAL.findall(body))
    body = _GLOBAL.sub("", body)
    for noise in _NOISE:
        body = noise.sub("", body)
    body = _LABEL.sub(r"\n%\1:", body)
    names = _LOCAL.findall(body)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    nodes = _Nodes("!" + metadata)
    used = "\n".join(map(nodes.written, _USE.findall(body)))
    digest = hashlib.sha256(f"{strings}\n{used}\n".encode())
    digest.update(_USE.sub("!", _LOCAL.sub("%", body)).encode())
    digest.update(array("I", map(numbers.__getitem__, names)).tobytes())
    return digest.hexdigest()[:16]


def assembly_key(assembly: str) -> str:
    """16 hex digits of assembly without debug lines, debug sections and comments."""
    kept: list[str] = []
    in_debug = False
    for line in assembly.splitlines():
        if "\t.section\t" in line or line.strip() == ".text":
            in_debug = ".debug" in line
        if not in_debug and not _DEBUG_LINE.match(line):
            kept.append(line)
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()[:16]


def code_key(compiled: Any, mod: Any, target: Target) -> str:
    """The key of the machine code of `compiled`, which the compiler made of `mod`."""
    options = options_text(options_of(mod))
    if not options:
        return llvm_ir_key(compiled.inspect_source("ll"))
    own = assembly_key(compiled.inspect_source("asm"))
    assembly, key = _keys_without_options(tvm.ir.save_json(mod).replace(options, ""), target)
    return key if own == assembly else own


@lru_cache(maxsize=64)
def _keys_without_options(module_json: str, target: Target) -> tuple[str, str]:
    """Keys of assembly and of IR, for a program whose options were taken out."""
    plain = compiler_with("", target).compile(tvm.ir.load_json(module_json)).mod
    return assembly_key(plain.inspect_source("asm")), llvm_ir_key(plain.inspect_source("ll"))
