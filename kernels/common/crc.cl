// The arithmetic of CRC-32C: polynomials over GF(2) modulo Castagnoli's, x^32 + x^28 + ... + 1, in 32 bits with the
// coefficient of x^0 in the highest. A message is such a polynomial too, and its checksum is linear in it. So pieces
// can be reduced separately, multiplied by powers of x, and added. The order of x is 2^31 - 1.

#define CRC_POLYNOMIAL 0x82f63b78u
// The order of x.
#define CRC_ORDER 0x7fffffffu
// x^(32 n): multiplying by it moves a polynomial by n words.
#define CRC_WORDS_1 0x82f63b78u
#define CRC_WORDS_2 0x6ea2d55cu
#define CRC_WORDS_4 0x18b8ea18u
#define CRC_WORDS_8 0x510ac59au
#define CRC_WORDS_16 0xb82be955u
#define CRC_WORDS_32 0xb8fdb1e7u

// CRC_POWER[16 k + v] = x^(v 16^k).
__constant uint CRC_POWER[128] = {
    0x80000000u, 0x40000000u, 0x20000000u, 0x10000000u, 0x08000000u, 0x04000000u, 0x02000000u, 0x01000000u,
    0x00800000u, 0x00400000u, 0x00200000u, 0x00100000u, 0x00080000u, 0x00040000u, 0x00020000u, 0x00010000u,
    0x80000000u, 0x00008000u, 0x82f63b78u, 0x8b277743u, 0x6ea2d55cu, 0xf56e0ef4u, 0xa66805ebu, 0xe75d06aau,
    0x18b8ea18u, 0x2a03aaa3u, 0x790606ffu, 0x8542ba6du, 0x9957c0a6u, 0x2e0af75au, 0x5d27e147u, 0x9421797fu,
    0x80000000u, 0x510ac59au, 0xb82be955u, 0x19b29a35u, 0xb8fdb1e7u, 0x1fe0b5c3u, 0x18e4a304u, 0x56993a31u,
    0x88e56f72u, 0x12b02f20u, 0x9030a49cu, 0xc1550ce8u, 0x67db2c4au, 0xf882f186u, 0xe744dcb2u, 0xc6ddcb06u,
    0x80000000u, 0x74c360a4u, 0xe4172b16u, 0x835305c9u, 0x0d65762au, 0xb5a50ab7u, 0x5f60970fu, 0x3a5275eau,
    0x35d73a62u, 0xf65e86d6u, 0x8eeafe04u, 0x84e3f8c8u, 0x481bee08u, 0x59f4852cu, 0xefcf4f49u, 0xda1c4087u,
    0x80000000u, 0x28461564u, 0xbf455269u, 0x65059450u, 0xe2ea32dcu, 0x695a4c87u, 0x9a4f01b6u, 0x4303cb97u,
    0xfe7740e6u, 0xab4c722au, 0x99569602u, 0xd65a1d78u, 0x78b57ca2u, 0x30a8edffu, 0x999dcda1u, 0x5918f954u,
    0x80000000u, 0xf946610bu, 0x3c204f8fu, 0x35af26b2u, 0x538586e3u, 0xf0f3875eu, 0x683988b2u, 0x0fc062f5u,
    0x59726915u, 0xe6ad6d8du, 0x30c6966du, 0x41757919u, 0x5be8b36eu, 0x5b146f36u, 0x42c5623cu, 0xd3c82384u,
    0x80000000u, 0x734d5309u, 0xbc1ac763u, 0x5414bce3u, 0x7d0722ccu, 0x238acb2bu, 0x546dfa6eu, 0xa3aa3946u,
    0xd289cabeu, 0x7b254800u, 0xc8018b1cu, 0xb83be32au, 0x278af7feu, 0x82939bedu, 0xff4be6deu, 0xdd789cecu,
    0x80000000u, 0xe94ca9bcu, 0x05b74f3fu, 0x14de47cdu, 0xa51e1f42u, 0x038d778cu, 0xb7c64e40u, 0x4f04f803u,
    0x40000000u, 0x74a654deu, 0x802d9ce7u, 0x8899189eu, 0x528f0fa1u, 0x01c6bbc6u, 0x5be32720u, 0xa5744779u,
};

// Cheap if `b` is constant and the loop is unrolled: the multiples of `b` by powers of x are constant too.
inline uint crc_multiply(uint a, uint b) {
    uint product = 0;
#pragma unroll
    for (uint i = 0; i < 32; i++) {
        product ^= b & (uint)((int)a >> 31);
        a <<= 1;
        b = (b >> 1) ^ (CRC_POLYNOMIAL & (0u - (b & 1u)));
    }
    return product;
}

// x^e
inline uint crc_power(uint e) {
    uint power = CRC_POWER[e & 15u];
    for (uint k = 1; k < 8; k++) {
        uint digit = e >> (4 * k) & 15u;
        if (digit != 0) power = crc_multiply(power, CRC_POWER[16 * k + digit]);
    }
    return power;
}
