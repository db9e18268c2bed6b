/* The tokens that a grammar allows: a bit a token, token 0 the lowest of the first word. A row without any bit has given
 * up: all may come, and it ends. */
#include "common.h"

ALWAYS int any_bit(const uint32_t *bits, long tokens) {
    uint32_t all = 0;
    for (long i = 0; i < (tokens + 31) / 32; i++) all |= bits[i];
    return all != 0;
}
/* Of one token, and of LANES tokens from the i-th on; where there are no bits, all are allowed. */
ALWAYS int allows(const uint32_t *bits, long token) { return !bits || bits[token >> 5] >> (token & 31) & 1; }
ALWAYS words allowed_lanes(const uint32_t *bits, long i) {
    if (!bits) return ~(words){0};
    return -((((words){0} + (bits[i >> 5] >> (i & 31))) >> numbered()) & 1);
}
/* The highest of a row's values among those, and which it is, the first of equals; where none is above minus infinity,
 * the first that is allowed. */
ALWAYS float highest_allowed(const void *row, const uint32_t *bits, long tokens, int half, long *token) {
    const long whole = tokens / LANES * LANES;
    vec tops = (vec){0} - INFINITY;
    words at = {0}, here = numbered();
    for (long i = 0; i < whole; i += LANES, here += LANES) {
        const vec x = get_lanes(row, i, half);
        const words higher = (words)(x > tops) & allowed_lanes(bits, i);
        tops = chosen(higher, x, tops);
        at = (here & higher) | (at & ~higher);
    }
    float high = -INFINITY;
    long found = 0;
    while (found < tokens - 1 && !allows(bits, found)) found++;
    for (int lane = 0; lane < LANES; lane++)
        if (tops[lane] > high || (tops[lane] == high && high > -INFINITY && at[lane] < found)) {
            high = tops[lane];
            found = at[lane];
        }
    for (long i = whole; i < tokens; i++)
        if (allows(bits, i) && get(row, i, half) > high) { high = get(row, i, half); found = i; }
    *token = found;
    return high;
}
