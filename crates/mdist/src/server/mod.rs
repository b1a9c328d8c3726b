//! What the programs run: hub, sides and upstreams wired together.
