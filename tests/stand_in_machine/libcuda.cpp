// The functions of NVIDIA's driver that tirgym calls, for a machine whose GPU is a CPU. A "cubin" is
// "stand-in:" and the path of a shared library that cuda_stand_in.py had g++ make of CUDA C.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

static const char PREFIX[] = "stand-in:";
static double now_us = 0.0;

struct Module {
    void *library;
    std::string source;
    int meets;  // its threads wait for each other
};
struct Function {
    Module *module;
    void *entry;
    int parameters;
};
typedef int (*Emulate)(void *, const unsigned *, const unsigned *, int, void **, int);

extern "C" {
double stand_in_us() { return now_us; }
int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int) { return *device = 0, 0; }
int cuDeviceGetAttribute(int *value, int attribute, int) { return *value = attribute == 75 ? 9 : 0, 0; }
int cuDeviceGetName(char *name, int size, int) { return strncpy(name, "Stand-in", size), 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuGetErrorString(int code, const char **text) {
    *text = code == 200 ? "device kernel image is invalid" : "some error";
    return 0;
}
int cuModuleLoadData(Module **module, const char *image) {
    if (strncmp(image, PREFIX, strlen(PREFIX))) return 200;
    std::string path = image + strlen(PREFIX), stem = path.substr(0, path.rfind('.'));
    std::ifstream file(stem + ".cpp");
    std::string source((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    bool meets = source.find("__syncthreads") != source.npos || source.find("__shfl") != source.npos;
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return 200;
    *module = new Module{library, source, meets};
    return 0;
}
int cuModuleUnload(Module *) { return 0; }
int cuModuleGetFunction(Function **function, Module *module, const char *name) {
    void *entry = dlsym(module->library, name);
    if (!entry) return 500;
    const std::string &source = module->source;
    size_t begin = source.find(std::string(name) + "("), end = source.find(')', begin);
    int commas = std::count(source.begin() + begin, source.begin() + end, ',');
    *function = new Function{module, entry, commas + 1};
    return 0;
}
int cuFuncSetCacheConfig(Function *, int) { return 0; }
int cuFuncSetAttribute(Function *, int, int) { return 0; }
// 500 us for a launch and 10 ns for each of its threads, so that times are the same on a busy machine.
int cuLaunchKernel(Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned, void *, void **parameters, void **) {
    unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
    now_us += 500.0 + 0.01 * gx * gy * gz * bx * by * bz;
    Emulate emulate = (Emulate)dlsym(function->module->library, "emulate");
    Module *module = function->module;
    return emulate(function->entry, grid, block, function->parameters, parameters, module->meets);
}
}
