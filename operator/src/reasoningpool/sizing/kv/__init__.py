"""KV cache blocks: elements, groups of layers, block sizes and what a request needs of them."""
