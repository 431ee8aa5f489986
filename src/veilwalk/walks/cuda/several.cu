// Ciphertexts that are sealed for several (_kernels_protocol.py, _kernels_laws.py). A set is written as stamps: the
// clock at which a node last became a recipient, which also tells whom the set has already.

#define SET_PARAMETERS                                                                                         \
    i64 n_nodes, const i64 *law_offsets, const int *law_columns, const double *law_weights, const double *law_keep, \
        const int *law_other, i64 weighed
#define THE_SETS Sets{(u32)n_nodes, weighed != 0, law_offsets, law_columns, law_other, law_weights, law_keep}

struct Sets {
    u32 n_nodes;
    bool weighed;
    const i64 *offsets;
    const int *columns, *other;
    const double *weights, *keep;
};

// The weight that a source gives a node: its probability, or one of those that are all alike.
DEVICE double weight_of(const Sets &sets, u32 source, u32 node) {
    i64 low = sets.offsets[source], high = sets.offsets[source + 1], end = high;
    while (low < high) {
        i64 middle = (low + high) >> 1;
        if ((u32)sets.columns[middle] < node)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < end && (u32)sets.columns[low] == node;
    if (!sets.weighed) return found ? 0.0 : 1.0;
    return found ? sets.weights[low] : 0.0;
}

// The node at which a share of the weight of those not chosen yet is reached.
static __device__ __noinline__ u32 weighed_anew(const Sets &sets, u32 source, const i64 *stamps, i64 clock,
                                                double share) {
    double total = 0.0;
    u32 last = 0;
    for (int turn = 0; turn < 2; turn++) {
        double goal = share * total, reached = 0.0;
        for (u32 node = 0; node < sets.n_nodes; node++) {
            double weight = weight_of(sets, source, node);
            if (!(weight > 0.0) || stamps[node] == clock) continue;
            reached += weight;
            last = node;
            if (turn == 1 && reached > goal) return node;
        }
        total = reached;
    }
    return last;
}

DEVICE void draw_set(const Sets &sets, i64 recipients, u64 seed, u64 job, u32 source, i64 clock, i64 *stamps) {
    u64 first = (u64)sets.offsets[source], number = 0;
    u32 size = (u32)((u64)sets.offsets[source + 1] - first);
    i64 count = 0, vain = 0;
    while (count < recipients) {
        u64 block = (u64)clock << 8 | (number & 0xFF);
        u32 words[4], node;
        block_words(seed, job, RECIPIENTS, (u32)(number >> 8) & 0xFF, block, words);
        number++;
        if (vain > PATIENCE * recipients) {
            node = weighed_anew(sets, source, stamps, clock, unit_interval(words[1], words[2]));
        } else {
            bool refused = false;
            if (!sets.weighed) {
                node = choice(seed, job, block | RECIPIENT_NUMBERS, words[0], sets.n_nodes);
                refused = weight_of(sets, source, node) == 0.0;
            } else {
                u32 slot = choice(seed, job, block | RECIPIENT_NUMBERS, words[0], size);
                if (unit_interval(words[1], words[2]) >= sets.keep[first + slot]) slot = (u32)sets.other[first + slot];
                node = (u32)sets.columns[first + slot];
            }
            if (refused || stamps[node] == clock) {
                vain++;
                continue;
            }
        }
        stamps[node] = clock;
        count++;
    }
}

KERNEL start_several(SET_PARAMETERS, i64 recipients, u64 seed, u64 first_job, i64 n_lanes, i64 *states, i64 *visits,
                     i64 *stamps) {
    const Sets sets = THE_SETS;
    for (i64 lane = THREAD; lane < n_lanes; lane += THREADS) {
        i64 *state = states + lane * N_COLUMNS;
        u64 job = first_job + (u64)lane;
        u32 node = start_node(seed, job, (u32)n_nodes);
        for (int column = 0; column < N_COLUMNS; column++) state[column] = -1;
        state[POSITION] = state[SOURCE] = node;
        state[CLOCK] = state[SEALED_AT] = 0;
        state[JOB] = (i64)job;
        visits[lane * n_nodes + node] = 0;
        draw_set(sets, recipients, seed, job, node, 0, stamps + lane * n_nodes);
    }
}

KERNEL run_several(WALK_PARAMETERS, SET_PARAMETERS, i64 recipients, const unsigned char *watching, i64 watched,
                   i64 tokens, u64 seed, i64 n_lanes, i64 *states, i64 *backs, i64 *visits, i64 *stamps,
                   const i64 *quotas, const i64 *rows, i64 recording, u32 *out) {
    const Walk walk = THE_WALK;
    const Sets sets = THE_SETS;
    for (i64 lane = THREAD; lane < n_lanes; lane += THREADS) {
        i64 quota = quotas[lane], made = 0;
        if (quota == 0) continue;
        i64 *state = states + lane * N_COLUMNS, *shelf = visits + lane * n_nodes, *mine = stamps + lane * n_nodes;
        i64 now = state[CLOCK];
        const u64 job = (u64)state[JOB];
        Token token = token_at(walk, seed, job, (u32)state[POSITION], (u64)backs[lane], now);
        while (made < quota) {
            u32 came_from = token.node;
            now++;
            hop(walk, token);
            i64 seen = shelf[token.node];
            shelf[token.node] = now;
            if (watched) sight(state, watching, token.node, came_from, now);
            if (mine[token.node] != state[SEALED_AT]) continue;
            if (recording)
                arrive(out + RECORD_WORDS * (rows[lane] + made), state, tokens, token.node, came_from, now, seen);
            seal(state, token.node, -1, now);
            draw_set(sets, recipients, seed, job, token.node, now, mine);
            made++;
        }
        state[CLOCK] = now;
        state[POSITION] = token.node;
        backs[lane] = (i64)token.back;
    }
}
