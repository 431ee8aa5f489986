// The whole protocol: tokens that walk, arrive, and are sealed for the next recipients, of whom the first to be met
// opens. A thread runs a lane; between calls a lane is its row of the state, as in _kernels_protocol.py.

enum {
    POSITION, BACK, JOB, CLOCK, SOURCE, SEALED_AT, DRAWS, TAG, FIRST_NODE, FIRST_FROM, FIRST_CLOCK, LAST_NODE, LAST_TO,
    LAST_CLOCK, BEFORE_NODE, BEFORE_TO, BEFORE_CLOCK, N_COLUMNS
};
// Fields of a record that take 64 bits come first, then those of 32.
enum { R_CLOCK, R_LEG, R_RETURN, R_FIRST_CLOCK, R_FIRST_HOPS, R_BEFORE_CLOCK, N_LONG };
enum {
    R_REPLICA = 2 * N_LONG, R_TOKEN, R_SOURCE, R_DESTINATION, R_LAST_HOP, R_FIRST_NODE, R_FIRST_FROM, R_BEFORE_NODE,
    R_BEFORE_TO, RECORD_WORDS
};

// Records are packed: their 64-bit fields stand on any 4 bytes.
DEVICE void put_long(u32 *record, int field, i64 value) {
    record[2 * field] = (u32)value;
    record[2 * field + 1] = (u32)((u64)value >> 32);
}

DEVICE void arrive(u32 *record, const i64 *state, i64 tokens, u32 node, u32 came_from, i64 now, i64 last_visit) {
    bool before = state[BEFORE_NODE] >= 0, first = state[FIRST_NODE] >= 0;
    put_long(record, R_CLOCK, now);
    put_long(record, R_LEG, now - state[SEALED_AT]);
    put_long(record, R_RETURN, last_visit >= 0 ? now - last_visit : -1);
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

// Let node seal its update for the next recipients: a new ciphertext, which no colluder has sighted.
DEVICE void seal(const Law &law, i64 recipients, bool by_number, u64 seed, u32 node, i64 now, i64 *state, i64 *shelf) {
    state[TAG] = draw_set(law, recipients, by_number, seed, (u64)state[JOB], node, now, state[DRAWS], shelf);
    state[DRAWS] += 1;
    state[SOURCE] = node;
    state[SEALED_AT] = now;
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

KERNEL start_lanes(LAW_PARAMETERS, i64 recipients, i64 by_number, u64 seed, u64 first_job, i64 n_lanes, i64 *states,
                   i64 *shelves) {
    const Law law = THE_LAW;
    for (i64 lane = THREAD; lane < n_lanes; lane += THREADS) {
        i64 *state = states + lane * N_COLUMNS, *shelf = shelves + lane * n_nodes;
        u64 job = first_job + (u64)lane;
        u32 node = start_node(seed, job, (u32)n_nodes);
        for (int column = 0; column < N_COLUMNS; column++) state[column] = 0;
        state[POSITION] = node;
        state[BACK] = (i64)NOWHERE;
        state[JOB] = (i64)job;
        state[LAST_NODE] = -1;
        shelf[node] = 0;
        seal(law, recipients, by_number != 0, seed, node, 0, state, shelf);
    }
}

// The threads of a warp go side by side, and sealing takes as long as many hops. So a token that has arrived waits until
// a share of the warp's tokens has, batch of 32, or none walks on; then those that wait seal together. A warp goes
// through its lanes as one: every thread votes until the last of them is done.
KERNEL run_lanes(WALK_PARAMETERS, LAW_PARAMETERS, i64 recipients, i64 by_number, const unsigned char *watching,
                 i64 watched, i64 tokens, u64 seed, i64 batch, i64 n_lanes, i64 *states, i64 *shelves,
                 const i64 *quotas, const i64 *rows, i64 recording, u32 *out) {
    const Walk walk = THE_WALK;
    const Law law = THE_LAW;
    for (i64 first = THREAD - THREAD_OF_WARP; first < n_lanes; first += THREADS) {
        i64 lane = first + THREAD_OF_WARP, quota = lane < n_lanes ? quotas[lane] : 0, count = 0;
        i64 *state = states + lane * N_COLUMNS, *shelf = shelves + lane * n_nodes, now = 0, tag = 0, entry = 0;
        bool walking = quota > 0, arrived = false;
        u32 came_from = 0;
        Token token = {};
        if (walking) {
            now = state[CLOCK], tag = state[TAG];
            token = token_at(walk, seed, (u64)state[JOB], (u32)state[POSITION], (u64)state[BACK], now);
        }
        for (;;) {
            if (walking) {
                came_from = token.node;
                now++;
                hop(walk, token);
                entry = shelf[token.node];
                shelf[token.node] = now << TAG_BITS;
                if (watched) sight(state, watching, token.node, came_from, now);
                arrived = (entry & TAG_MASK) == tag;
                walking = !arrived;
            }
            int n_walking = COUNT_IN_WARP(walking), n_arrived = COUNT_IN_WARP(arrived);
            if (n_walking + n_arrived == 0) break;
            if (!arrived || (n_walking > 0 && n_arrived * 32 < batch * (n_walking + n_arrived))) continue;
            if (recording)
                arrive(out + RECORD_WORDS * (rows[lane] + count), state, tokens, token.node, came_from, now,
                       entry >> TAG_BITS);
            seal(law, recipients, by_number != 0, seed, token.node, now, state, shelf);
            tag = state[TAG];
            arrived = false;
            walking = ++count < quota;
        }
        if (quota == 0) continue;
        state[CLOCK] = now;
        state[POSITION] = token.node;
        state[BACK] = (i64)token.back;
    }
}
