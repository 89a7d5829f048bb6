"""Programs behind HTTP and MCP: a page to ask on, an API of events, and the protocols that other tools speak."""
