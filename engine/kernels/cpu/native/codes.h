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
 * integers, times a scale. Of 4 again: an entry, times a power of two. */
enum { STEPS = 1, ENTRIES, ENTRIES_TWICE, BYTES, POWERS };

struct scales {
    const void *steps;   /* [panels][depth / group][PANEL]: words of a scale in float16 and, above it, a zero; float32;
                            codes of 8 bits; of integers float32; exponents of 8 bits, 127 more, as float32 has them */
    const float *table;  /* [16], of entries */
    const float *fine;   /* [256], of scales */
    const float *coarse; /* [...][2]: what the entries of SHARED scales are times, and what is added */
    const int32_t *first; /* [panels][PANEL]: which of all scales a column's first one is */
    long group;          /* of the depth have a scale; whole words */
};

ALWAYS int codes_of_a_word(int coding) { return coding == BYTES ? 4 : 8; }

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

/* So many bytes as words. */
ALWAYS words exponents_at(const uint8_t *from) {
#if defined __AVX512F__
    return (words)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from));
#elif defined __AVX2__
    return (words)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from));
#else
    words x;
    for (int lane = 0; lane < LANES; lane++) x[lane] = from[lane];
    return x;
#endif
}

/* The scales of a panel's columns in a group: `[PANEL]`. */
static inline void scales_of(float *to, const struct scales *s, int coding, long panel, long depth, long group) {
    const long from = (panel * (depth / s->group) + group) * PANEL;
    if (coding == STEPS)
        for (int i = 0; i < PANEL; i += LANES)
            *(vec *)(to + i) = from_float16(*(const words *)((const uint32_t *)s->steps + from + i) & 0xffff);
    else if (coding == POWERS)
        for (int i = 0; i < PANEL; i += LANES) {
            const words exponents = exponents_at((const uint8_t *)s->steps + from + i);
            *(words *)(to + i) = exponents << 23 | ((words)(exponents == 0) & 0x400000);
        }
    else if (coding == ENTRIES_TWICE)
        for (int i = 0; i < PANEL; i++) {
            const float *coarse = s->coarse + (s->first[panel * PANEL + i] + group) / SHARED * 2;
            to[i] = s->fine[((const uint8_t *)s->steps)[from + i]] * coarse[0] + coarse[1];
        }
    else memcpy(to, (const float *)s->steps + from, PANEL * sizeof(float));
}

#ifdef __AVX512BF16__
/* A byte of each lane, its lowest or the one above, less 128: as the end of a float32 between 2^23 and 2^24. */
ALWAYS vec of_byte(words some, int above) {
    if (above) return (vec)((some & 0xff00) | 0x4b000000) * 0x1p-8f - (0x1p15f + 128);
    return (vec)((some & 0xff) | 0x4b000000) - (0x1p23f + 128);
}
#endif

/* A part of a panel within a group, and what its numbers are made with. */
struct piece {
    const uint32_t *weight; /* [count][PANEL] */
    long count;
    const float *table;
    words zero[WIDE]; /* of steps float32; for two of bfloat16 16 - zero, twice in a lane */
    words halves;     /* the table as bfloat16, by 5 bits: of entries twice, of steps of code - zero + 16 */
};

/* The one from `begin` to `end` of the depth. */
ALWAYS struct piece piece_of(const void *weight, const struct scales *s, long panel, long depth, long begin, long end,
                             const int coding, const int halves) {
    const long each = codes_of_a_word(coding), group = panel * (depth / s->group) + begin / s->group;
    struct piece piece = {(const uint32_t *)weight + (panel * depth + begin) / each * PANEL, (end - begin) / each, s->table};
    for (int i = 0; i < WIDE && coding == STEPS; i++) {
        const words zero = *(const words *)((const uint32_t *)s->steps + group * PANEL + i * LANES) >> 16;
        if (halves) piece.zero[i] = (16 - zero) | (16 - zero) << 16;
        else piece.zero[i] = (words)__builtin_convertvector((integers)zero, vec);
    }
#ifdef __AVX512BF16__
    const vec counted = __builtin_convertvector((integers)numbered(), vec);
    __m256i first = (__m256i)nearest(counted - 16), last = (__m256i)nearest(counted);
    if (coding == ENTRIES) first = last = (__m256i)nearest(*(const vec *)s->table);
    piece.halves = (words)_mm512_inserti64x4(_mm512_castsi256_si512(first), last, 1);
#endif
    return piece;
}

/* Of the i-th vector of words the k-th number of each, float32, or, of `halves`, its k-th two as bfloat16: integers are
 * exact, entries are rounded. */
ALWAYS words number(const struct piece *piece, words some, int i, int k, const int coding, const int halves) {
#ifdef __AVX512BF16__
    if (halves && coding == BYTES) {
        const vec low = of_byte(some ^ 0x80808080, k), high = of_byte((some ^ 0x80808080) >> 16, k);
        return ((words)low >> 16) | ((words)high & 0xffff0000);
    }
    if (halves) {
        __m512i codes = _mm512_srli_epi16((__m512i)some, 4 * k);
        if (coding == STEPS) codes = _mm512_add_epi16(_mm512_and_si512(codes, _mm512_set1_epi16(15)), (__m512i)piece->zero[i]);
        return (words)_mm512_permutexvar_epi16(codes, (__m512i)piece->halves);
    }
#endif
    const int bits = 32 / codes_of_a_word(coding), up = k / 2 * bits + k % 2 * 16;
    if (coding == BYTES) return (words)__builtin_convertvector((integers)(some << (24 - up)) >> 24, vec);
    if (coding == ENTRIES) return (words)entries(piece->table, some >> up);
    return (words)(__builtin_convertvector((integers)(some >> up & 15), vec) - (vec)piece->zero[i]);
}

/* All of its numbers: `[depth][PANEL]`, or as a weight of bfloat16 lies. */
ALWAYS void decode(uint32_t *to, const struct piece *piece, const int coding, const int halves) {
    const int each = codes_of_a_word(coding) >> halves;
    const uint32_t *weight = piece->weight;
    for (long b = 0; b < piece->count; b++, weight += PANEL, to += each * PANEL)
        for (int i = 0; i < WIDE; i++) {
            const words some = *(const words *)(weight + i * LANES);
            for (int k = 0; k < each; k++) *(words *)(to + k * PANEL + i * LANES) = number(piece, some, i, k, coding, halves);
        }
}
