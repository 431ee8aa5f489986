// The whole protocol: tokens that walk, arrive, and are sealed for the next destination, or for several of whom the
// first to be met opens. A thread a lane; between calls a lane is its row of the state, as in _kernels_protocol.py.

enum {
    POSITION, CLOCK, SOURCE, GOAL, SEALED_AT, DRAWS, FIRST_NODE, FIRST_CLOCK, LAST_NODE, LAST_CLOCK, BEFORE_NODE,
    BEFORE_CLOCK, FIRST_FROM, LAST_TO, BEFORE_TO, JOB, N_COLUMNS
};
// Fields of a record that take 64 bits come first, then those of 32.
enum { R_CLOCK, R_LEG, R_RETURN, R_FIRST_CLOCK, R_FIRST_HOPS, R_BEFORE_CLOCK, N_LONG };
enum {
    R_REPLICA = 2 * N_LONG, R_TOKEN, R_SOURCE, R_DESTINATION, R_LAST_HOP, R_FIRST_NODE, R_FIRST_FROM, R_BEFORE_NODE,
    R_BEFORE_TO, RECORD_WORDS
};
// Keep the replacements of words drawn for different ends apart.
#define DESTINATION_NUMBERS (1ull << 47)
#define RECIPIENT_NUMBERS (3ull << 46)
#define PATIENCE 8

#define LAW_PARAMETERS const i64 *law_offsets, const int *law_columns, const double *law_keep, const int *law_other

// Records are packed: their 64-bit fields stand on any 4 bytes.
DEVICE void put_long(u32 *record, int field, i64 value) {
    record[2 * field] = (u32)value;
    record[2 * field + 1] = (u32)((u64)value >> 32);
}

DEVICE void arrive(u32 *record, const i64 *state, i64 tokens, u32 node, u32 came_from, i64 now, i64 seen) {
    bool before = state[BEFORE_NODE] >= 0, first = state[FIRST_NODE] >= 0;
    put_long(record, R_CLOCK, now);
    put_long(record, R_LEG, now - state[SEALED_AT]);
    put_long(record, R_RETURN, seen >= 0 ? now - seen : -1);
    put_long(record, R_FIRST_CLOCK, first ? state[FIRST_CLOCK] : -1);
    put_long(record, R_FIRST_HOPS, first ? state[FIRST_CLOCK] - state[SEALED_AT] : -1);
    put_long(record, R_BEFORE_CLOCK, before ? state[BEFORE_CLOCK] : -1);
    record[R_REPLICA] = (u32)(state[JOB] / tokens);
    record[R_TOKEN] = (u32)(state[JOB] % tokens);
    record[R_SOURCE] = (u32)state[SOURCE];
    record[R_DESTINATION] = node;
    record[R_LAST_HOP] = came_from;
    record[R_FIRST_NODE] = (u32)state[FIRST_NODE];
    record[R_FIRST_FROM] = first ? (u32)state[FIRST_FROM] : ~0u;
    record[R_BEFORE_NODE] = (u32)state[BEFORE_NODE];
    record[R_BEFORE_TO] = before ? (u32)state[BEFORE_TO] : ~0u;
}

DEVICE void seal(i64 *state, u32 node, i64 goal, i64 now) {
    state[SOURCE] = node;
    state[GOAL] = goal;
    state[SEALED_AT] = now;
    state[DRAWS] += 1;
    state[BEFORE_NODE] = state[LAST_NODE];
    state[BEFORE_CLOCK] = state[LAST_CLOCK];
    state[BEFORE_TO] = state[LAST_TO];
    state[FIRST_NODE] = state[LAST_NODE] = -1;
}

DEVICE void sight(i64 *state, const unsigned char *watching, u32 node, u32 came_from, i64 now) {
    if (watching[came_from] && state[LAST_NODE] >= 0) state[LAST_TO] = node;
    if (!watching[node]) return;
    if (state[FIRST_NODE] < 0) {
        state[FIRST_NODE] = node;
        state[FIRST_FROM] = came_from;
        state[FIRST_CLOCK] = now;
    }
    state[LAST_NODE] = node;
    state[LAST_CLOCK] = now;
    state[LAST_TO] = -1;
}

DEVICE u32 draw_destination(LAW_PARAMETERS, u64 seed, u64 job, u32 node, u64 draw) {
    u64 first = (u64)law_offsets[node];
    u32 words[4];
    block_words(seed, job, DESTINATION, 0, draw, words);
    u32 slot = choice(seed, job, draw | DESTINATION_NUMBERS, words[0], (u32)((u64)law_offsets[node + 1] - first));
    if (unit_interval(words[1], words[2]) >= law_keep[first + slot]) slot = (u32)law_other[first + slot];
    return (u32)law_columns[first + slot];
}

KERNEL start_lanes(i64 n_nodes, LAW_PARAMETERS, u64 seed, u64 first_job, i64 n_lanes, i64 *states,
                   i64 *visits) {
    for (i64 lane = THREAD; lane < n_lanes; lane += THREADS) {
        i64 *state = states + lane * N_COLUMNS;
        u64 job = first_job + (u64)lane;
        u32 node = start_node(seed, job, (u32)n_nodes);
        for (int column = 0; column < N_COLUMNS; column++) state[column] = 0;
        state[POSITION] = state[SOURCE] = node;
        state[GOAL] = draw_destination(law_offsets, law_columns, law_keep, law_other, seed, job, node, 0);
        state[JOB] = (i64)job;
        state[DRAWS] = 1;
        state[FIRST_NODE] = state[LAST_NODE] = state[BEFORE_NODE] = -1;
        visits[lane * n_nodes + node] = 0;
    }
}

KERNEL run_lanes(WALK_PARAMETERS, i64 n_nodes, LAW_PARAMETERS, const unsigned char *watching, i64 watched, i64 tokens,
                 u64 seed, i64 n_lanes, i64 *states, i64 *backs, i64 *visits, const i64 *quotas,
                 const i64 *rows, i64 recording, u32 *out) {
    const Walk walk = THE_WALK;
    for (i64 lane = THREAD; lane < n_lanes; lane += THREADS) {
        i64 quota = quotas[lane], made = 0;
        if (quota == 0) continue;
        i64 *state = states + lane * N_COLUMNS, *shelf = visits + lane * n_nodes, now = state[CLOCK];
        const u64 job = (u64)state[JOB];
        Token token = token_at(walk, seed, job, (u32)state[POSITION], (u64)backs[lane], now);
        u32 goal = (u32)state[GOAL];
        // No arrival happens between two visits of a goal, so what is read when sealing holds on arrival.
        i64 goal_seen = shelf[goal];
        while (made < quota) {
            u32 came_from = token.node;
            now++;
            hop(walk, token);
            shelf[token.node] = now;
            if (watched) sight(state, watching, token.node, came_from, now);
            if (token.node != goal) continue;
            if (recording)
                arrive(out + RECORD_WORDS * (rows[lane] + made), state, tokens, token.node, came_from, now, goal_seen);
            goal = draw_destination(law_offsets, law_columns, law_keep, law_other, seed, job, token.node,
                                    (u64)state[DRAWS]);
            seal(state, token.node, goal, now);
            goal_seen = shelf[goal];
            made++;
        }
        state[CLOCK] = now;
        state[POSITION] = token.node;
        backs[lane] = (i64)token.back;
    }
}
