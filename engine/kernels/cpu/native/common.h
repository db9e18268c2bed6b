/* What a step on a CPU does, each part in one pass over its data.
 *
 * Values are float32, or bfloat16 (`half`), which is computed in float32 and rounded where torch rounds it. Tensors are
 * contiguous, but where a stride is named (in elements).
 *
 * A part is a function that every thread of a team calls with the same structure; each does some of it, and gives back
 * how many things there are to do in all. `program.c` runs one part, or a whole step of them.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

/* Of GNU's OpenMP; other runtimes have it too. Called by name, so that any C compiler will do. */
extern int omp_get_num_threads(void), omp_get_thread_num(void);

/* Of a vector of the processor's own registers: a wider one has no machine mode, and each of its operations goes
 * through memory (a product took ten times as long). */
#if defined __AVX512F__
#define LANES 16
#elif defined __AVX__
#define LANES 8
#else
#define LANES 4
#endif
/* How many there are, which bounds the sums that a loop can keep. */
#if defined __AVX512F__ || defined __aarch64__
#define REGISTERS 32
#else
#define REGISTERS 16
#endif
#define ALWAYS static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t integers __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

/* The number of each lane. */
ALWAYS words numbered(void) {
    words x;
    for (int lane = 0; lane < LANES; lane++) x[lane] = lane;
    return x;
}

ALWAYS float as_float(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
ALWAYS uint32_t as_bits(float x) { uint32_t bits; memcpy(&bits, &x, 4); return bits; }

/* bfloat16 is the upper half of a float32; ties are rounded to even. */
ALWAYS uint16_t narrow(float x) {
    uint32_t bits = as_bits(x);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return x != x ? 0x7fc0 : rounded;
}
ALWAYS float widen(uint16_t x) { return as_float((uint32_t)x << 16); }

ALWAYS float get(const void *from, long i, int half) {
    return half ? widen(((const uint16_t *)from)[i]) : ((const float *)from)[i];
}
ALWAYS void put(void *to, long i, float x, int half) {
    if (half) ((uint16_t *)to)[i] = narrow(x); else ((float *)to)[i] = x;
}
/* From its i-th value on. Loops read through such pointers of their own: one that a structure holds is read anew for
 * every value, and the values are then gathered one by one. */
ALWAYS void *part(const void *from, long i, int half) { return (char *)from + i * (half ? 2 : 4); }
/* What the compiler makes of such a conversion goes value by value, or by halves. */
ALWAYS vec widened(halves x) {
#ifdef __AVX512F__
    return (vec)((words)_mm512_cvtepu16_epi32((__m256i)x) << 16);
#elif defined __AVX2__
    return (vec)((words)_mm256_cvtepu16_epi32((__m128i)x) << 16);
#else
    return (vec)(__builtin_convertvector(x, words) << 16);
#endif
}
ALWAYS vec get_lanes(const void *from, long i, int half) {
    if (!half) return *(const vec *)((const float *)from + i);
    return widened(*(const halves *)((const uint16_t *)from + i));
}

/* Of words below 2^16. */
ALWAYS halves narrowed(words x) {
#if defined __AVX2__ && !defined __AVX512F__
    const __m256i pairs = _mm256_packus_epi32((__m256i)x, (__m256i)x); /* within each half of the register */
    return (halves)_mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, 0x08));
#else
    return __builtin_convertvector(x, halves);
#endif
}

/* Values rounded to bfloat16. The processor's own instruction takes what is too small for a normal float as zero. */
ALWAYS halves nearest(vec x) {
#ifdef __AVX512BF16__
    return (halves)_mm512_cvtneps_pbh((__m512)x);
#else
    const words bits = (words)x, strange = (words)(x != x);
    return narrowed((((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) & ~strange) | (strange & 0x7fc0));
#endif
}
ALWAYS vec rounded_lanes(vec x, int half) { return half ? widened(nearest(x)) : x; }
ALWAYS void put_lanes(void *to, long i, vec x, int half) {
    if (half) *(halves *)((uint16_t *)to + i) = nearest(x);
    else *(vec *)((float *)to + i) = x;
}

/* As many as are left: at the end of a row fewer than a vector. */
ALWAYS vec get_some(const void *from, long i, long left, int half) {
    if (left >= LANES) return get_lanes(from, i, half);
    vec x = {0};
    for (long lane = 0; lane < left; lane++) x[lane] = get(from, i + lane, half);
    return x;
}
ALWAYS void put_some(void *to, long i, vec x, long left, int half) {
    if (left >= LANES) put_lanes(to, i, x, half);
    else for (long lane = 0; lane < left; lane++) put(to, i + lane, x[lane], half);
}

/* A number in each lane: less 0 is left out by a compiler, and 0 more is not. */
ALWAYS vec every(float x) { return x - (vec){0}; }

/* a * b + c, rounded once where the processor can: what a compiler makes of the sum differs from loop to loop. */
ALWAYS vec times_plus(vec a, vec b, vec c) {
#if defined __AVX512F__
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined __FMA__
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

ALWAYS vec chosen(words mask, vec yes, vec no) { return (vec)(((words)yes & mask) | ((words)no & ~mask)); }
/* Between two bounds; NaN stays NaN. */
ALWAYS vec bounded(vec x, float low, float high) {
    const vec least = (vec){0} + low, most = (vec){0} + high;
#ifdef __AVX512F__
    return (vec)_mm512_min_ps((__m512)most, _mm512_max_ps((__m512)least, (__m512)x)); /* of a NaN the second */
#else
    x = chosen((words)(x < least), least, x);
    return chosen((words)(x > most), most, x);
#endif
}
/* exp by 2^n * p(f), to 2 units in the last place; NaN stays NaN. */
ALWAYS vec exponentials(vec x) {
    const vec within = bounded(x, -87.0f, 88.0f);
    const vec n = (within * 1.44269504f + 12582912.0f) - 12582912.0f;
    const vec f = within - n * 0.693145752f - n * 1.42860677e-6f;
    const vec p = 1.0f + f * (1.0f + f * (0.5f + f * (0.166666672f + f * (0.0416664891f + f * (0.00833360072f
                  + f * 0.00139304355f)))));
    return p * (vec)((__builtin_convertvector(n, integers) + 127) << 23);
}

ALWAYS float exponential(float x) { return exponentials((vec){0} + x)[0]; }

/* a / b, to 2 units in the last place; b is at least 1. */
ALWAYS vec over(vec a, vec b) {
#ifdef __AVX512F__
    const vec near = (vec)_mm512_rcp14_ps((__m512)b);
    return a * (near * (2.0f - b * near));
#else
    return a / b;
#endif
}

/* The highest of its lanes, and their sum. */
ALWAYS float highest(vec x) {
#ifdef __AVX512F__
    return _mm512_reduce_max_ps((__m512)x);
#endif
    for (int by = LANES / 2; by; by /= 2)
        for (int lane = 0; lane < by; lane++) x[lane] = x[lane + by] > x[lane] ? x[lane + by] : x[lane];
    return x[0];
}
ALWAYS float summed(vec x) {
#ifdef __AVX512F__
    return _mm512_reduce_add_ps((__m512)x); /* in the same order */
#endif
    for (int by = LANES / 2; by; by /= 2)
        for (int lane = 0; lane < by; lane++) x[lane] += x[lane + by];
    return x[0];
}

/* Every part's structure begins with it. */
struct part {
    long rows;          /* how many there are of what a step has more of with every token */
    long next, done;    /* of its things: the first that no thread has yet, and how many are done */
    int half, failed;   /* of bfloat16; whether there was no memory for it */
};

/* Gives this thread the next `some` of so many things, as long as there are any. None is dealt out beforehand: where
 * another program has a thread's processor, the other threads do its share. */
ALWAYS int take(struct part *part, long things, long some, long *from, long *to) {
    *from = __atomic_fetch_add(&part->next, some, __ATOMIC_RELAXED);
    *to = *from + some < things ? *from + some : things;
    return *from < things;
}

/* What was taken is done. */
ALWAYS void done(struct part *part, long from, long to) { __atomic_fetch_add(&part->done, to - from, __ATOMIC_RELEASE); }

/* How many rows are taken at once, where each has so many values: enough not to meet at every one. */
ALWAYS long some_rows(long values) { return values < 4096 ? 4096 / values : 1; }

/* What a gate lets through: silu of it, or gelu by tanh, which is x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 x^3)). */
ALWAYS vec activated(vec x, const int by_tanh) {
    vec z = x;
    if (by_tanh) z = 1.59576912f * (x + 0.044715f * x * x * x);
    return over(x, 1.0f + exponentials(-z));
}

/* Gates of gpt-oss, and what they gate, are bounded first: gate * sigmoid(1.702 gate), times up + 1. */
#define BOUND 7.0f
ALWAYS vec activated_bounded(vec x) {
    x = bounded(x, -INFINITY, BOUND);
    return over(x, 1.0f + exponentials(-1.702f * x));
}
