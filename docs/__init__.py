"""The project's documents; they install with it, so that the MCP server can show them."""
