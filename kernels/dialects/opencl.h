// Names that the kernels use in place of OpenCL C's own, so that cuda.h can define them in CUDA C++ too.

// Declares workgroup memory; `__local` stands for pointers to it.
#define SHARED __local
// Vectors from their parts, or from one value for all parts.
#define UINT2 (uint2)
#define UINT4 (uint4)
// Parts of a vector of four: the first two; the last two; and the last three, followed by another value.
#define FIRST_TWO(four) (four).xy
#define LAST_TWO(four) (four).zw
#define FOLLOWED_BY(four, value) (uint4)((four).yzw, value)
// A pointer to workgroup memory, some bytes before another.
#define LOCAL_BEFORE(type, pointer, bytes) ((__local type *)((size_t)(pointer) - (bytes)))
