// Philox4x32-10, and words of it that turn into exactly uniform choices: what _kernels_random.py says, word for word.
//
// Every text here compiles with NVRTC and, through a few macros (tests/helpers/host_device.py), with any C++ compiler:
// kernels step through their work by the grid, so that one thread that is the whole grid does all of it. Scalars are
// 64 bits wide, as both callers hand them over.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE static __device__ __forceinline__
#define KERNEL extern "C" __global__ void

// Where this thread stands in the grid, and how many there are.
#define THREAD ((i64)blockIdx.x * blockDim.x + threadIdx.x)
#define THREADS ((i64)gridDim.x * blockDim.x)
// Its place among the threads that step together, and for how many of these something holds.
#define THREAD_OF_WARP ((i64)(threadIdx.x & 31))
#define COUNT_IN_WARP(holds) __popc(__ballot_sync(0xFFFFFFFFu, holds))

// What a stream is for.
enum { WALK = 0, RETRY = 1, DESTINATION = 2, START = 4, RECIPIENTS = 5 };

DEVICE void block_words(u64 seed, u64 job, u32 purpose, u32 attempt, u64 block, u32 words[4]) {
    u32 c0 = (u32)block, c1 = (purpose << 24) | (attempt << 16) | (u32)(block >> 32);
    u32 c2 = (u32)job, c3 = (u32)(job >> 32);
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
    for (int turn = 0; turn < 10; turn++) {
        u64 product_0 = (u64)0xD2511F53u * c0, product_1 = (u64)0xCD9E8D57u * c2;
        c0 = (u32)(product_1 >> 32) ^ c1 ^ k0;
        c1 = (u32)product_1;
        c2 = (u32)(product_0 >> 32) ^ c3 ^ k1;
        c3 = (u32)product_0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

static __device__ __noinline__ u32 replacement_word(u64 seed, u64 job, u64 word, u32 span, u32 limit) {
    for (u32 attempt = 0;; attempt++) {
        u32 words[4];
        block_words(seed, job, RETRY, attempt, word, words);
        if (words[0] * span >= limit) return words[0];
    }
}

// The accepted words of a walk's block: those that give span values equally often.
DEVICE void walk_words(u64 seed, u64 job, u64 block, u64 span, u64 limit, u32 words[4]) {
    block_words(seed, job, WALK, 0, block, words);
    if (limit > 0) {
#pragma unroll
        for (int part = 0; part < 4; part++)
            if (words[part] * (u32)span < (u32)limit)
                words[part] = replacement_word(seed, job, block << 2 | part, (u32)span, (u32)limit);
    }
}

// One of n_choices equally likely values from a word, which has this number in its stream.
DEVICE u32 choice(u64 seed, u64 job, u64 number, u32 word, u32 n_choices) {
    u64 product = (u64)word * n_choices;
    if ((u32)product < n_choices) {
        u32 limit = (u32)(0x100000000ull % n_choices);
        if ((u32)product < limit) product = (u64)replacement_word(seed, job, number, n_choices, limit) * n_choices;
    }
    return (u32)(product >> 32);
}

// A number in [0, 1) with 53 random bits.
DEVICE double unit_interval(u32 high, u32 low) {
    return (double)((u64)high << 21 | low >> 11) * (1.0 / 9007199254740992.0);
}
