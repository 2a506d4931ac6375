// What the kernels that code LZ77 sequences share.
