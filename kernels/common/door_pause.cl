// Pauses between two looks at a handle. In OpenCL C and CUDA C++ they are part of the door.
//
// @pz_import door
