// Independent walks: where they end (_kernels.py), when they first meet a node (_kernels_hits.py).

// As many double steps as _moves.py makes at most; their halves stay below 2**15.
#define MAX_DOUBLES 8192

DEVICE u32 dense_move(const int *table, u32 width, u32 node, u32 *word) {
    u64 product = (u64)*word * width;
    *word = (u32)product;
    return (u32)table[(u64)node * width + (u32)(product >> 32)];
}

DEVICE u32 ragged_move(const int *table, const i64 *offsets, u64 seed, u64 job, u64 number, u32 node, u32 word) {
    u64 first = (u64)offsets[node];
    return (u32)table[first + choice(seed, job, number, word, (u32)((u64)offsets[node + 1] - first))];
}

KERNEL WITH_BLOCKS(4) final_positions(const int *table, const i64 *offsets, i64 width, i64 digits, u64 span, u64 limit,
                       const int *starts, i64 n_jobs, i64 steps, u64 seed, u64 first_job, int *out) {
    for (i64 place = THREAD; place < n_jobs; place += THREADS) {
        u64 job = first_job + (u64)place;
        u32 node = (u32)starts[place];
        i64 left = steps;
        for (u64 block = 0; left > 0; block++) {
            u32 words[4];
            walk_words(seed, job, block, span, limit, words);
#pragma unroll
            for (int part = 0; part < 4; part++) {
                int now = (int)(left < digits ? left : digits);
                if (width > 0)
                    for (int step = 0; step < now; step++) node = dense_move(table, (u32)width, node, &words[part]);
                else if (now > 0)
                    node = ragged_move(table, offsets, seed, job, block << 2 | part, node, words[part]);
                left -= now;
            }
        }
        out[place] = (int)node;
    }
}

// The same where double steps fit the memory that the threads of a block share.
KERNEL WITH_BLOCKS(4) final_positions_by_doubles(const int *table, const unsigned short *ends, i64 n_ends, i64 width, i64 digits,
                                  u64 span, u64 limit, const int *starts, i64 n_jobs, i64 steps, u64 seed,
                                  u64 first_job, int *out) {
    __shared__ unsigned short doubles[MAX_DOUBLES];
    for (i64 entry = threadIdx.x; entry < n_ends; entry += blockDim.x) doubles[entry] = ends[entry];
    __syncthreads();
    u32 square = (u32)(width * width);
    int n_doubles = (int)digits / 2;
    for (i64 place = THREAD; place < n_jobs; place += THREADS) {
        u64 job = first_job + (u64)place;
        u32 state = (u32)starts[place] * square;
        u64 n_blocks = (u64)steps / (u64)(4 * digits);
        u32 words[4];
        for (u64 block = 0; block < n_blocks; block++) {
            walk_words(seed, job, block, span, limit, words);
#pragma unroll
            for (int part = 0; part < 4; part++)
#pragma unroll 4
                for (int step = 0; step < n_doubles; step++) {
                    u64 product = (u64)words[part] * square;
                    words[part] = (u32)product;
                    state = doubles[state + (u32)(product >> 32)];
                }
        }
        u32 node = state / square;
        i64 left = steps - (i64)n_blocks * 4 * digits;
        if (left > 0) {
            walk_words(seed, job, n_blocks, span, limit, words);
#pragma unroll
            for (int part = 0; part < 4; part++) {
                int now = (int)(left < digits ? left : digits);
                for (int step = 0; step < now; step++) node = dense_move(table, (u32)width, node, &words[part]);
                left -= now;
            }
        }
        out[place] = (int)node;
    }
}

// Each block of threads has its own jobs; who has met its target takes the next of them when its words are used up.
#define TAKE_SHARE                                              \
    __shared__ u32 next;                                        \
    i64 share = (n_jobs + gridDim.x - 1) / gridDim.x;           \
    i64 low = (i64)blockIdx.x * share;                          \
    i64 size = n_jobs - low < share ? n_jobs - low : share;     \
    if (threadIdx.x == 0) next = blockDim.x;                    \
    __syncthreads();                                            \
    i64 mine = threadIdx.x

KERNEL WITH_BLOCKS(4) first_hits(const int *table, const i64 *offsets, i64 width, i64 digits, u64 span, u64 limit,
                  const int *sources, const int *targets, i64 n_jobs, i64 max_steps, u64 seed, u64 first_job,
                  i64 *out) {
    TAKE_SHARE;
    u64 block = 0;
    u32 node = 0, goal = 0;
    if (mine < size) node = (u32)sources[low + mine], goal = (u32)targets[low + mine];
    while (mine < size) {
        u64 job = first_job + (u64)(low + mine);
        i64 done = (i64)block * 4 * digits;
        int hit = 0;
        u32 words[4];
        walk_words(seed, job, block, span, limit, words);
#pragma unroll
        for (int part = 0; part < 4; part++) {
            if (width > 0)
                for (int step = 1; step <= (int)digits; step++) {
                    node = dense_move(table, (u32)width, node, &words[part]);
                    if (node == goal && hit == 0) hit = part * (int)digits + step;
                }
            else {
                node = ragged_move(table, offsets, seed, job, block << 2 | part, node, words[part]);
                if (node == goal && hit == 0) hit = part + 1;
            }
        }
        block++;
        if (hit == 0 && done + 4 * digits < max_steps) continue;
        out[low + mine] = hit > 0 && done + hit <= max_steps ? done + hit : -1;
        mine = atomicAdd(&next, 1u);
        block = 0;
        if (mine < size) node = (u32)sources[low + mine], goal = (u32)targets[low + mine];
    }
}

// The same where double steps fit shared memory: both nodes of a double step are compared with the target at once, and
// what that gives is shifted into one mask a word, from which the first hit is read without walking again.
KERNEL WITH_BLOCKS(4) first_hits_by_doubles(const u32 *pairs, i64 n_pairs, i64 width, i64 digits, u64 span, u64 limit,
                             const int *sources, const int *targets, i64 n_jobs, i64 max_steps, u64 seed,
                             u64 first_job, i64 *out) {
    __shared__ u32 doubles[MAX_DOUBLES];
    for (i64 entry = threadIdx.x; entry < n_pairs; entry += blockDim.x) doubles[entry] = pairs[entry];
    TAKE_SHARE;
    const u32 square = (u32)(width * width);
    const int n_doubles = (int)digits / 2, spare = 16 - n_doubles;
    const u32 half = ((1u << n_doubles) - 1) << spare, all = half << 16 | half;
    u64 block = 0;
    u32 state = 0, goals = 0;
    if (mine < size) state = (u32)sources[low + mine] * square, goals = (u32)targets[low + mine] * square * 0x10001u;
    while (mine < size) {
        int hit = 0;
        u32 words[4];
        walk_words(seed, first_job + (u64)(low + mine), block, span, limit, words);
#pragma unroll
        for (int part = 0; part < 4; part++) {
            u32 misses = 0;
#pragma unroll 4
            for (int step = 0; step < n_doubles; step++) {
                u64 product = (u64)words[part] * square;
                words[part] = (u32)product;
                u32 pair = doubles[state + (u32)(product >> 32)];
                // A half that differs has its top bit set once this is added.
                misses = misses >> 1 | (((pair ^ goals) + 0x7FFF7FFFu) & 0x80008000u);
                state = pair >> 16;
            }
            u32 hits = ~misses & all;
            if (hits && hit == 0) {
                u32 first = hits & 0xFFFFu, second = hits >> 16;
                int at_first = first ? 2 * (__ffs(first) - 1 - spare) + 1 : 64;
                int at_second = second ? 2 * (__ffs(second) - 1 - spare) + 2 : 64;
                hit = part * (int)digits + (at_first < at_second ? at_first : at_second);
            }
        }
        block++;
        if (hit == 0 && (i64)block * 4 * digits < max_steps) continue;
        i64 time = (i64)(block - 1) * 4 * digits + hit;
        out[low + mine] = hit > 0 && time <= max_steps ? time : -1;
        mine = atomicAdd(&next, 1u);
        block = 0;
        if (mine < size) state = (u32)sources[low + mine] * square, goals = (u32)targets[low + mine] * square * 0x10001u;
    }
}
