// A token that walks on, hop by hop, by a table of moves or by a rule (_kernels_protocol.py). Hop h is served by the same
// words as there.

enum { TABLE, METROPOLIS, NON_BACKTRACKING };
#define NOWHERE (~0ull)

#define WALK_PARAMETERS                                                                                       \
    i64 kind, const i64 *offsets, const int *table, i64 n_words, i64 width, i64 digits, \
        u64 span, u64 limit
#define THE_WALK Walk{(int)kind, (int)n_words, (int)digits, (u32)width, span, limit, offsets, table}

DEVICE u32 dense_move(const int *table, u32 width, u32 node, u32 *word) {
    u64 product = (u64)*word * width;
    *word = (u32)product;
    return (u32)table[(u64)node * width + (u32)(product >> 32)];
}

DEVICE u32 ragged_move(const int *table, const i64 *offsets, u64 seed, u64 job, u64 number, u32 node, u32 word) {
    u64 first = (u64)offsets[node];
    return (u32)table[first + choice(seed, job, number, word, (u32)((u64)offsets[node + 1] - first))];
}

struct Walk {
    int kind, n_words, digits;
    u32 width;
    u64 span, limit;
    const i64 *offsets;
    const int *table;
};

// Words of the block at hand, and how far they are used up.
struct Token {
    u64 seed, job, block, back;
    u32 node, word, words[4];
    int part, digit;
};

DEVICE u32 word_at(const Token &token, int part) {
    u32 low = part & 1 ? token.words[1] : token.words[0], high = part & 1 ? token.words[3] : token.words[2];
    return part & 2 ? high : low;
}

DEVICE void draw_block(const Walk &walk, Token &token) {
    walk_words(token.seed, token.job, token.block, walk.span, walk.limit, token.words);
}

DEVICE Token token_at(const Walk &walk, u64 seed, u64 job, u32 node, u64 back, i64 clock) {
    bool by_rule = walk.kind != TABLE;
    i64 block_hops = by_rule ? 4 / walk.n_words : 4 * walk.digits;
    int within = (int)(clock % block_hops);
    Token token;
    token.seed = seed, token.job = job, token.node = node, token.back = back;
    token.block = (u64)(clock / block_hops);
    token.part = by_rule ? within * walk.n_words : within / walk.digits;
    token.digit = by_rule ? 0 : within % walk.digits;
    draw_block(walk, token);
    token.word = word_at(token, token.part);
    for (int digit = 0; digit < token.digit; digit++) token.word *= walk.width;
    return token;
}

// The entry that leads back is left out, unless there is none, or no other. Entries are in the order of their nodes.
DEVICE u64 onward(const Walk &walk, const Token &token, u64 number, u32 word, u64 first, u32 degree) {
    if (token.back == NOWHERE || degree == 1) return first + choice(token.seed, token.job, number, word, degree);
    u64 entry = first + choice(token.seed, token.job, number, word, degree - 1);
    return (u64)walk.table[entry] >= token.back ? entry + 1 : entry;
}

DEVICE void hop_by_rule(const Walk &walk, Token &token) {
    u64 number = token.block << 2 | (u64)token.part;
    u32 word = word_at(token, token.part), coin = word_at(token, token.part + walk.n_words - 1);
    u64 first = (u64)walk.offsets[token.node];
    u32 degree = (u32)((u64)walk.offsets[token.node + 1] - first);
    if (walk.kind == METROPOLIS) {
        u32 node = (u32)walk.table[first + choice(token.seed, token.job, number, word, degree)];
        u32 other = (u32)(walk.offsets[node + 1] - walk.offsets[node]);
        if (other <= degree || choice(token.seed, token.job, number + 1, coin, other) < degree) token.node = node;
        return;
    }
    u64 entry = onward(walk, token, number, word, first, degree);
    token.back = token.node;
    token.node = (u32)walk.table[entry];
}

// Move on by one hop.
DEVICE void hop(const Walk &walk, Token &token) {
    if (token.part == 4) {
        token.part = 0;
        token.block++;
        draw_block(walk, token);
        token.word = token.words[0];
    }
    if (walk.kind != TABLE) {
        hop_by_rule(walk, token);
        token.part += walk.n_words;
        return;
    }
    if (walk.width > 0)
        token.node = dense_move(walk.table, walk.width, token.node, &token.word);
    else
        token.node = ragged_move(walk.table, walk.offsets, token.seed, token.job, token.block << 2 | token.part,
                                 token.node, token.word);
    if (++token.digit == walk.digits) {
        token.digit = 0;
        token.word = word_at(token, ++token.part & 3);
    }
}

DEVICE u32 start_node(u64 seed, u64 job, u32 n_nodes) {
    u32 words[4];
    block_words(seed, job, START, 0, 0, words);
    return choice(seed, job, 1ull << 47, words[0], n_nodes);
}
