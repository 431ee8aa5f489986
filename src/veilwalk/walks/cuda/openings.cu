// Which node opens a ciphertext, with the set of recipients summed out (_kernels_laws.py). One thread walks a lane; one
// thread weighs a leg, for all sets. Sums are whole numbers, so that their order does not matter.

#define NEGLIGIBLE 1e-9
#define SHARE_UNIT 1099511627776.0
#define HOP_UNIT 65536.0
enum { LEGS, HOPS, UNOPENED, N_SUMS };

DEVICE void add(i64 *sum, i64 more) { atomicAdd((u64 *)sum, (u64)more); }

DEVICE i64 to_units(double share, double unit) { return (i64)(share * unit + 0.5); }

// exp(-x) for x >= 0 by the same sums and products as there.
DEVICE double decay(double x) {
    if (x > 745.0) return 0.0;
    double turns = floor(x * 1.4426950408889634 + 0.5);
    double rest = turns * 1.9082149292705877e-10 - (x - turns * 0.6931471803691238);
    double sum = 1.0 / 6227020800.0;
    sum = sum * rest + 1.0 / 479001600.0;
    sum = sum * rest + 1.0 / 39916800.0;
    sum = sum * rest + 1.0 / 3628800.0;
    sum = sum * rest + 1.0 / 362880.0;
    sum = sum * rest + 1.0 / 40320.0;
    sum = sum * rest + 1.0 / 5040.0;
    sum = sum * rest + 1.0 / 720.0;
    sum = sum * rest + 1.0 / 120.0;
    sum = sum * rest + 1.0 / 24.0;
    sum = sum * rest + 1.0 / 6.0;
    sum = sum * rest + 0.5;
    sum = sum * rest + 1.0;
    sum = sum * rest + 1.0;
    return ldexp(sum, -(int)turns);
}

// Write the path of every lane, when each of its nodes was visited before, and the clocks at which it seals; behind those
// that count, up to cut, stands the clock at which the last was opened, or the path's end.
KERNEL walk_legs(WALK_PARAMETERS, LAW_PARAMETERS, i64 recipients, u64 walk_seed, u64 set_seed, u64 first_lane,
                 i64 n_lanes, i64 end, i64 cut, i64 *shelves, int *paths, int *earlier, int *sealed, i64 *n_legs) {
    const Walk walk = THE_WALK;
    const Law law = THE_LAW;
    for (i64 lane = THREAD; lane < n_lanes; lane += THREADS) {
        u64 job = first_lane + (u64)lane;
        i64 *shelf = shelves + lane * n_nodes, legs = 0, now = 0;
        int *path = paths + lane * (end + 1), *before = earlier + lane * (end + 1), *clocks = sealed + lane * (end + 1);
        Token token = token_at(walk, walk_seed, job, start_node(walk_seed, job, (u32)n_nodes), NOWHERE, 0);
        shelf[token.node] = 0;
        i64 tag = draw_set(law, recipients, false, set_seed, job, token.node, 0, 0, shelf);
        path[0] = (int)token.node;
        before[0] = -1;
        clocks[0] = 0;
        while (now < end) {
            now++;
            hop(walk, token);
            i64 entry = shelf[token.node];
            path[now] = (int)token.node;
            before[now] = (int)(entry >> TAG_BITS);
            shelf[token.node] = now << TAG_BITS;
            if (clocks[legs] > cut || (entry & TAG_MASK) != tag) continue;
            clocks[++legs] = (int)now;
            if (now <= cut) tag = draw_set(law, recipients, false, set_seed, job, token.node, now, legs, shelf);
        }
        // A leg that no node opened counts too, to the end of the path.
        if (clocks[legs] <= cut) clocks[++legs] = (int)end;
        n_legs[lane] = legs;
    }
}

struct Pool {
    bool even;
    double recipients, eligible, met, met_weight, time, slope;
};

// The chance that a node met for the first time is a recipient, if no node met before it is one.
DEVICE double chance(Pool &pool, double weight) {
    double hit;
    if (pool.even) {
        double left = pool.eligible - pool.met;
        hit = pool.recipients / (left > pool.recipients ? left : pool.recipients);
    } else if (pool.recipients == 1.0) {
        double left = 1.0 - pool.met_weight;
        hit = weight / (left > weight ? left : weight);
        hit = hit < 1.0 ? hit : 1.0;
    } else {
        double left = decay(weight * pool.time), slope = pool.slope - weight * left;
        pool.slope = slope > 1e-300 ? slope : 1e-300;
        pool.time = pool.time + (1.0 - left) / pool.slope;
        hit = 1.0 - left;
    }
    pool.met += 1.0;
    pool.met_weight += weight;
    return hit;
}

KERNEL weigh_legs(const int *paths, const int *earlier, const int *sealed, const i64 *leg_offsets, i64 n_lanes, i64 end,
                 i64 warm, LAW_PARAMETERS, const i64 *eligible, const unsigned char *even, const double *pace,
                 const double *slopes, i64 recipients, const i64 *indptr, const int *indices, i64 *sums, i64 *sources,
                 i64 *arrived, i64 *joint, i64 jointly, i64 *by_hop, i64 longest) {
    const Law law = THE_LAW;
    for (i64 item = THREAD; item < leg_offsets[n_lanes]; item += THREADS) {
        i64 lane = 0;
        for (i64 above = n_lanes; above - lane > 1;) {
            i64 middle = (lane + above) / 2;
            if (leg_offsets[middle] <= item)
                lane = middle;
            else
                above = middle;
        }
        const int *path = paths + lane * (end + 1), *before = earlier + lane * (end + 1);
        const int *clocks = sealed + lane * (end + 1) + (item - leg_offsets[lane]);
        i64 start = clocks[0], opened = clocks[1], now = start, later = 0;
        if (start < warm) continue;
        u32 source = (u32)path[start];
        Pool pool = {even[source] != 0, (double)recipients, (double)eligible[source], 0.0, 0.0,
                     pace[source],      slopes[source]};
        double alive = 1.0, hops = 0.0;
        while (now < end && (alive > NEGLIGIBLE || now < opened)) {
            now++;
            hops += alive;
            u32 node = (u32)path[now];
            if (before[now] > start || node == source) continue;
            double weight = weight_of(law, source, node);
            if (weight == 0.0) continue;
            double share = alive * chance(pool, weight);
            alive -= share;
            i64 whole = to_units(share, SHARE_UNIT), arc = indptr[node];
            while (arc < indptr[node + 1] && indices[arc] != path[now - 1]) arc++;
            if (arc < indptr[node + 1]) {
                add(arrived + arc, whole);
                if (jointly) add(joint + arc * n_nodes + source, whole);
            }
            if (now - start < longest)
                add(by_hop + (now - start), whole);
            else
                later += whole;
        }
        add(by_hop + longest, later);
        add(sums + lane * N_SUMS + LEGS, 1);
        add(sums + lane * N_SUMS + HOPS, to_units(hops, HOP_UNIT));
        add(sums + lane * N_SUMS + UNOPENED, to_units(alive, SHARE_UNIT));
        add(sources + lane * n_nodes + source, 1);
    }
}
