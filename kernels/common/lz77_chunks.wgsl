// See the OpenCL file.
