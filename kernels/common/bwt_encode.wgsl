// Layouts that the kernels of the BWT encoder share: as in OpenCL C, once they are written.
