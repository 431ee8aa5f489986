// Sets of recipients (_kernels_laws.py). A shelf is the row of a lane in a table with a word per node: the clock of the
// last visit, shifted by TAG_BITS, and in the low bits the tag of the last set to which the node belonged.

#define TAG_BITS 16
#define TAG_MASK 0xFFFFll
// Separate the replacements of words that are drawn for different purposes.
#define DESTINATION_NUMBERS (1ull << 47)
#define RECIPIENT_NUMBERS (3ull << 46)
// After so many draws in vain for each recipient the rest of a row is weighed anew.
#define PATIENCE 8

#define LAW_PARAMETERS                                                                                         \
    i64 n_nodes, const i64 *law_offsets, const int *law_columns, const double *law_weights, const double *law_keep, \
        const int *law_other, i64 weighed
#define THE_LAW Law{(u32)n_nodes, weighed != 0, law_offsets, law_columns, law_other, law_weights, law_keep}

struct Law {
    u32 n_nodes;
    bool weighed;
    const i64 *offsets;
    const int *columns, *other;
    const double *weights, *keep;
};

// The weight that a source gives a node: its probability, or 1 where all weights are equal.
DEVICE double weight_of(const Law &law, u32 source, u32 node) {
    i64 low = law.offsets[source], high = law.offsets[source + 1], end = high;
    while (low < high) {
        i64 middle = (low + high) >> 1;
        if ((u32)law.columns[middle] < node)
            low = middle + 1;
        else
            high = middle;
    }
    bool listed = low < end && (u32)law.columns[low] == node;
    if (!law.weighed) return listed ? 0.0 : 1.0;
    return listed ? law.weights[low] : 0.0;
}

// The node at which a share of the weight of those not chosen yet is reached.
static __device__ __noinline__ u32 choose_by_weight(const Law &law, u32 source, const i64 *shelf, i64 tag, double share) {
    double total = 0.0;
    u32 last = 0;
    for (int turn = 0; turn < 2; turn++) {
        double goal = share * total, reached = 0.0;
        for (u32 node = 0; node < law.n_nodes; node++) {
            double weight = weight_of(law, source, node);
            if (!(weight > 0.0) || (shelf[node] & TAG_MASK) == tag) continue;
            reached += weight;
            last = node;
            if (turn == 1 && reached > goal) return node;
        }
        total = reached;
    }
    return last;
}

// Mark on the shelf the recipients that source draws at clock, in the lane's set number n_drawn; return the set's tag.
// With by_number the one recipient comes from the stream of destinations, by that number.
DEVICE i64 draw_set(const Law &law, i64 recipients, bool by_number, u64 seed, u64 job, u32 source, i64 clock, i64 n_drawn,
                    i64 *shelf) {
    i64 tag = n_drawn % TAG_MASK + 1, count = 0, vain = 0;
    // Where tags begin again, erase the old ones.
    if (tag == 1 && n_drawn > 0)
        for (u32 node = 0; node < law.n_nodes; node++) shelf[node] &= ~TAG_MASK;
    u64 first = (u64)law.offsets[source], number = 0;
    u32 size = (u32)((u64)law.offsets[source + 1] - first);
    while (count < recipients) {
        u64 block = by_number ? (u64)n_drawn : (u64)clock << 8 | (number & 0xFF);
        u64 name = block | (by_number ? DESTINATION_NUMBERS : RECIPIENT_NUMBERS);
        u32 words[4], node;
        block_words(seed, job, by_number ? DESTINATION : RECIPIENTS, (u32)(number >> 8) & 0xFF, block, words);
        number++;
        if (vain > PATIENCE * recipients) {
            node = choose_by_weight(law, source, shelf, tag, unit_interval(words[1], words[2]));
        } else {
            bool refused = false;
            if (!law.weighed) {
                node = choice(seed, job, name, words[0], law.n_nodes);
                refused = weight_of(law, source, node) == 0.0;
            } else {
                u32 slot = choice(seed, job, name, words[0], size);
                if (unit_interval(words[1], words[2]) >= law.keep[first + slot]) slot = (u32)law.other[first + slot];
                node = (u32)law.columns[first + slot];
            }
            if (refused || (shelf[node] & TAG_MASK) == tag) {
                vain++;
                continue;
            }
        }
        shelf[node] = (shelf[node] & ~TAG_MASK) | tag;
        count++;
    }
    return tag;
}
