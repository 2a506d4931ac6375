// The part of OpenCL C that the kernels use, in CUDA C++. This precedes a kernel's source, after the constants.
//
// Where CUDA C++ would convert types differently, compilation must fail. So functions have no overloads for types that
// the kernels do not use: a call with a byte is an error, not a call with an int.

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef size_t ulong;
static_assert(sizeof(ulong) == 8, "64-bit sizes");

#define __global
#define __private
#define __local
#define __constant static __constant__ const
#define SHARED __shared__
#define restrict __restrict__
// OpenCL's compilers inline every function. CUDA's must too, or a pointer would lose its memory space, workgroup
// memory.
#define inline __forceinline__
#define LOCAL_BEFORE(type, pointer, bytes) \
    ((type *)__cvta_shared_to_generic(__cvta_generic_to_shared(pointer) - (bytes)))

// ---- Work items -----------------------------------------------------------------------------------------------------

inline size_t get_group_id(uint) { return blockIdx.x; }
inline size_t get_local_id(uint) { return threadIdx.x; }
inline size_t get_local_size(uint) { return blockDim.x; }
inline size_t get_num_groups(uint) { return gridDim.x; }
inline size_t get_global_id(uint) { return (size_t)blockIdx.x * blockDim.x + threadIdx.x; }

#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
// Orders both kinds of memory within the workgroup.
#define barrier(fences) __syncthreads()
#define mem_fence(fences) __threadfence_block()

#define atomic_add(p, v) atomicAdd((p), (v))
#define atomic_sub(p, v) atomicSub((p), (v))
#define atomic_inc(p) atomicAdd((p), 1u)
#define atomic_or(p, v) atomicOr((p), (v))
#define atomic_and(p, v) atomicAnd((p), (v))
#define atomic_min(p, v) atomicMin((p), (v))
#define atomic_max(p, v) atomicMax((p), (v))
#define atomic_xchg(p, v) atomicExch((p), (v))

// ---- Numbers --------------------------------------------------------------------------------------------------------

template <class T> uint popcount(T) = delete;
template <> inline uint popcount(uint v) { return (uint)__popc(v); }
template <> inline uint popcount(ulong v) { return (uint)__popcll(v); }
template <class T> T clz(T) = delete;
template <> inline uint clz(uint v) { return (uint)__clz((int)v); }
template <> inline ulong clz(ulong v) { return (ulong)__clzll((long long)v); }
template <class T> T mul_hi(T, T) = delete;
template <> inline uint mul_hi(uint a, uint b) { return __umulhi(a, b); }
// The functions of CUDA with these names promote and mix types.
template <class T> inline T pz_min(T a, T b) { return a < b ? a : b; }
template <class T> inline T pz_max(T a, T b) { return a < b ? b : a; }
template <class T> inline T pz_clamp(T v, T low, T high) { return pz_min(pz_max(v, low), high); }
inline uint pz_abs(int v) { return v < 0 ? 0u - (uint)v : (uint)v; }
#define min pz_min
#define max pz_max
#define clamp pz_clamp
#define abs pz_abs
inline uint as_uint(float v) { return __float_as_uint(v); }
inline float as_float(uint v) { return __uint_as_float(v); }

// ---- Vectors: operators for each part, and comparisons that give 0 or all ones --------------------------------------

inline uint2 UINT2(uint x, uint y) { return make_uint2(x, y); }
inline uint2 UINT2(uint v) { return make_uint2(v, v); }
inline uint4 UINT4(uint x, uint y, uint z, uint w) { return make_uint4(x, y, z, w); }
inline uint4 UINT4(uint v) { return make_uint4(v, v, v, v); }

inline uint2 FIRST_TWO(uint4 v) { return make_uint2(v.x, v.y); }
inline uint2 LAST_TWO(uint4 v) { return make_uint2(v.z, v.w); }
inline uint4 FOLLOWED_BY(uint4 v, uint value) { return make_uint4(v.y, v.z, v.w, value); }

#define PZ_OPERATOR(op)                                                                                             \
    inline uint2 operator op(uint2 a, uint2 b) { return make_uint2(a.x op b.x, a.y op b.y); }                       \
    inline uint2 operator op(uint2 a, uint b) { return a op UINT2(b); }                                             \
    inline uint2 operator op(uint a, uint2 b) { return UINT2(a) op b; }                                             \
    inline uint4 operator op(uint4 a, uint4 b) { return make_uint4(a.x op b.x, a.y op b.y, a.z op b.z, a.w op b.w); } \
    inline uint4 operator op(uint4 a, uint b) { return a op UINT4(b); }                                             \
    inline uint4 operator op(uint a, uint4 b) { return UINT4(a) op b; }                                             \
    template <class B> inline uint2 &operator op##=(uint2 &a, B b) { return a = a op b; }                           \
    template <class B> inline uint4 &operator op##=(uint4 &a, B b) { return a = a op b; }
PZ_OPERATOR(+) PZ_OPERATOR(-) PZ_OPERATOR(*) PZ_OPERATOR(&) PZ_OPERATOR(|) PZ_OPERATOR(^) PZ_OPERATOR(<<) PZ_OPERATOR(>>)
inline uint2 operator~(uint2 v) { return make_uint2(~v.x, ~v.y); }
inline uint4 operator~(uint4 v) { return make_uint4(~v.x, ~v.y, ~v.z, ~v.w); }

#define PZ_COMPARISON(op)                                                                                           \
    inline uint2 operator op(uint2 a, uint2 b) { return make_uint2(0u - (a.x op b.x), 0u - (a.y op b.y)); }         \
    inline uint4 operator op(uint4 a, uint4 b) {                                                                    \
        return make_uint4(0u - (a.x op b.x), 0u - (a.y op b.y), 0u - (a.z op b.z), 0u - (a.w op b.w));              \
    }
PZ_COMPARISON(<) PZ_COMPARISON(<=) PZ_COMPARISON(>) PZ_COMPARISON(>=) PZ_COMPARISON(==) PZ_COMPARISON(!=)

inline uint2 as_uint2(uint2 v) { return v; }
inline uint2 as_uint2(ulong v) { return make_uint2((uint)v, (uint)(v >> 32)); }
inline uint4 as_uint4(uint4 v) { return v; }
inline ulong as_ulong(uint2 v) { return (ulong)v.y << 32 | v.x; }
