"""The closed world: a made-up universe with exact gold for everything asked about it."""
