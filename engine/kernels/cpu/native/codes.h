/* Weights that are held in fewer bits, and how a part of one becomes numbers again, once for all rows that it is
 * multiplied with. What they are scaled by, their sums are.
 *
 * They lie as [panels][depth / BLOCK][PANEL] words: of each column one with BLOCK codes, in the lower half of it those of
 * every second of the depth, in the upper half those between; each from the lowest bits up. */
#include "common.h"

#define WIDE (REGISTERS / 8) /* vectors of a panel: with six times as many sums they fill the registers */
#define PANEL (WIDE * LANES)
#define SHARED 256 /* scales that are codes themselves have one of their own together */

#ifdef __AVX512BF16__
#define MULTIPLIES_HALVES 1
#else
#define MULTIPLIES_HALVES 0
#endif

/* Of 4 bits: (code - zero) * scale; an entry of a table, times a scale; the same of scales that are codes too. Of 8:
 * integers, times a scale. */
enum { STEPS = 1, ENTRIES, ENTRIES_TWICE, BYTES };

struct scales {
    const void *steps;   /* [panels][depth / group][PANEL]: words of a scale in float16 and, above it, a zero; float32;
                            codes of 8 bits; of integers float32 */
    const float *table;  /* [16], of entries */
    const float *fine;   /* [256], of scales */
    const float *coarse; /* [...][2]: what the entries of SHARED scales are times, and what is added */
    const int32_t *from; /* [panels][PANEL]: which of all scales a column's first one is */
    long group;          /* of the depth have a scale; whole words */
};

ALWAYS long codes_of_a_word(int coding) { return coding == BYTES ? 4 : 8; }

/* float16, no infinity and no NaN, as float32. */
ALWAYS vec from_float16(words bits) {
    const vec size = (vec)((bits & 0x7fff) << 13) * 0x1p112f;
    return (vec)((words)size | (bits & 0x8000) << 16);
}

/* What stands in a table at the lowest 4 bits of each lane. */
ALWAYS vec entries(const float *table, words at) {
#if defined __AVX512F__
    return (vec)_mm512_permutexvar_ps((__m512i)at, _mm512_loadu_ps(table));
#elif defined __AVX2__
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), (__m256i)at);
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), (__m256i)at);
    return (vec)_mm256_blendv_ps(low, high, (__m256)(at << 28));
#else
    vec x;
    for (int lane = 0; lane < LANES; lane++) x[lane] = table[at[lane] & 15];
    return x;
#endif
}

/* The scales of a panel's columns in a group: `[PANEL]`. */
static void scales_of(float *to, const struct scales *s, int coding, long panel, long depth, long group) {
    const long from = (panel * (depth / s->group) + group) * PANEL;
    if (coding == STEPS)
        for (int i = 0; i < PANEL; i += LANES)
            *(vec *)(to + i) = from_float16(*(const words *)((const uint32_t *)s->steps + from + i) & 0xffff);
    else if (coding == ENTRIES_TWICE)
        for (int i = 0; i < PANEL; i++) {
            const float *coarse = s->coarse + (s->from[panel * PANEL + i] + group) / SHARED * 2;
            to[i] = s->fine[((const uint8_t *)s->steps)[from + i]] * coarse[0] + coarse[1];
        }
    else memcpy(to, (const float *)s->steps + from, PANEL * sizeof(float));
}

/* The number that stands for a code, in lanes that are shifted so that it is lowest. */
ALWAYS vec number(words codes, const float *table, vec zero, const int coding) {
    if (coding == STEPS) return __builtin_convertvector((integers)(codes & 15), vec) - zero;
    return entries(table, codes);
}

/* A panel's numbers from `begin` to `end` of the depth, which are of one group: `[end - begin][PANEL]` of float32. */
ALWAYS void decode_as(float *to, const uint32_t *weight, const struct scales *s, long panel, long depth, long begin, long end,
                      const int coding) {
    const long each = codes_of_a_word(coding), bits = 32 / each, count = (end - begin) / each;
    const uint32_t *zeros = (const uint32_t *)s->steps + (panel * (depth / s->group) + begin / s->group) * PANEL;
    weight += (panel * depth + begin) / each * PANEL;
    vec zero[WIDE] = {0};
    for (int i = 0; i < WIDE && coding == STEPS; i++)
        zero[i] = __builtin_convertvector(*(const integers *)(zeros + i * LANES) >> 16, vec);
    for (long b = 0; b < count; b++, weight += PANEL, to += each * PANEL)
        for (int i = 0; i < WIDE; i++) {
            const words some = *(const words *)(weight + i * LANES);
            float *at = to + i * LANES;
            for (int k = 0; k < each; k++) {
                const int up = k / 2 * bits + k % 2 * 16;
                if (coding == BYTES) *(vec *)(at + k * PANEL) = __builtin_convertvector((integers)(some << (24 - up)) >> 24, vec);
                else *(vec *)(at + k * PANEL) = number(some >> up, s->table, zero[i], coding);
            }
        }
}

#ifdef __AVX512BF16__
/* A byte of each lane, its lowest or the one above, less 128: as the end of a float32 between 2^23 and 2^24. */
ALWAYS vec of_byte(words some, int above) {
    if (above) return (vec)((some & 0xff00) | 0x4b000000) * 0x1p-8f - (0x1p15f + 128);
    return (vec)((some & 0xff) | 0x4b000000) - (0x1p23f + 128);
}

/* The same as a weight of bfloat16 lies, two of the depth side by side. Integers are exact, entries are rounded. */
ALWAYS void decode_halves_as(float *to, const uint32_t *weight, const struct scales *s, long panel, long depth, long begin,
                             long end, const int coding) {
    const long each = codes_of_a_word(coding), count = (end - begin) / each;
    const uint32_t *zeros = (const uint32_t *)s->steps + (panel * (depth / s->group) + begin / s->group) * PANEL;
    const vec from_0 = __builtin_convertvector((integers)numbered(), vec); /* of steps the table of code - zero + 16 */
    __m256i first = (__m256i)nearest(from_0 - 16), last = (__m256i)nearest(from_0);
    if (coding == ENTRIES) first = last = (__m256i)nearest(*(const vec *)s->table);
    const __m512i table = _mm512_inserti64x4(_mm512_castsi256_si512(first), last, 1);
    weight += (panel * depth + begin) / each * PANEL;
    words zero[WIDE] = {0};
    for (int i = 0; i < WIDE && coding == STEPS; i++) {
        const words one = 16 - (*(const words *)(zeros + i * LANES) >> 16);
        zero[i] = one | one << 16;
    }
    for (long b = 0; b < count; b++, weight += PANEL, to += each / 2 * PANEL)
        for (int i = 0; i < WIDE; i++) {
            const words some = *(const words *)(weight + i * LANES);
            float *at = to + i * LANES;
            for (int k = 0; k < each / 2; k++) {
                words pair;
                if (coding == BYTES) {
                    const vec low = of_byte(some ^ 0x80808080, k), high = of_byte((some ^ 0x80808080) >> 16, k);
                    pair = ((words)low >> 16) | ((words)high & 0xffff0000);
                } else {
                    __m512i codes = _mm512_srli_epi16((__m512i)some, 4 * k);
                    if (coding == STEPS) codes = _mm512_add_epi16(_mm512_and_si512(codes, _mm512_set1_epi16(15)), (__m512i)zero[i]);
                    pair = (words)_mm512_permutexvar_epi16(codes, table); /* by their lowest 5 bits */
                }
                *(words *)(at + k * PANEL) = pair;
            }
        }
}
#else
#define decode_halves_as decode_as
#endif

/* As `decode_as`, or, of `halves`, as bfloat16. */
ALWAYS void decode(float *to, const void *weight, const struct scales *s, int coding, long panel, long depth, long begin,
                   long end, const int halves) {
    switch (coding) {
    case STEPS: (halves ? decode_halves_as : decode_as)(to, weight, s, panel, depth, begin, end, STEPS); break;
    case BYTES: (halves ? decode_halves_as : decode_as)(to, weight, s, panel, depth, begin, end, BYTES); break;
    default: (halves ? decode_halves_as : decode_as)(to, weight, s, panel, depth, begin, end, ENTRIES);
    }
}
