/* The orbit sum, forward and backward, in one pass over pairs of points:
 *
 *     out[o][i][j] = scale * sum_s W[o][s] f( a[i] + b[j] + sum_k C[s][k] P[k][i][j] ),    P[k] = U[:, k-th part] V[k-th part, :]
 *
 * f is the profile of a kernel in the squared distance or in the inner product. Rows [first, last) are done, so that callers can
 * share them out between threads; a call touches no global state. Columns are taken in chunks that stay in the first-level cache.
 * With `comps` the P[k] are given (computed by matrix products where the parts are wide), else they are formed here.
 * Where `ways` > 0 the weights are Walsh-Hadamard's, W[o][s] = (-1)^popcount(o & s): butterflies take the place of W.
 * The file includes itself once for each precision. NaN in, NaN out: no comparison here drops one.
 */
#ifndef REAL

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tgmath.h>

#define CHUNK 128   /* columns taken together */
#define SHORT 1024  /* terms of a sum in single precision */
#define MOST_WAYS 3 /* of negation, that are done in registers */

enum { RBF, MATERN12, MATERN32, MATERN52, RATIONAL_QUADRATIC, POWER };

typedef struct {
    int64_t m, n;           /* rows, columns */
    int64_t parts, width;   /* K, and the columns of U over all parts */
    int64_t order;          /* |G| */
    int64_t reals, pairs;   /* outputs that are real, and that are complex */
    int64_t rest;           /* 1: the first part moves with no element */
    int64_t ways;           /* J of a Walsh-Hadamard transform, or 0 */
    int64_t negation;       /* 1: the parts after the rest are negated by one way each */
    int64_t profile;
    double parameter;       /* alpha of a rational quadratic, the exponent of a power */
    double scale;
} Problem;

#define PRAGMA(text) _Pragma(#text)
#define SUM(...) PRAGMA(omp simd reduction(+ : __VA_ARGS__)) /* whose terms may come in any order: vectorised */
#define SIMD PRAGMA(GCC ivdep)                               /* whose rounds touch different numbers: vectorised */
#define UNROLL PRAGMA(GCC unroll 16)                         /* whose ends are constants: what it indexes is in registers */
#define INLINE inline __attribute__((always_inline))

static const double factorials[] = {1, 1, 2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800, 39916800, 479001600};

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

#define REAL float
#define SUFFIX _float
#define BITS uint32_t
#define MAGIC 12583039.0f
#define MANTISSA 23
#define BIAS 127
#define LOWEST -80.0f
#define TINY 1e-18f
#define TERMS 6
#include "orbit.c"
#undef REAL
#undef SUFFIX
#undef BITS
#undef MAGIC
#undef MANTISSA
#undef BIAS
#undef LOWEST
#undef TINY
#undef TERMS

#define REAL double
#define SUFFIX _double
#define BITS uint64_t
#define MAGIC 6755399441056767.0
#define MANTISSA 52
#define BIAS 1023
#define LOWEST -700.0
#define TINY 1e-150
#define TERMS 12
#define DOUBLE
#include "orbit.c"

#else /* one precision */

#define NAME(x) JOIN(x, SUFFIX)

/* e^x for x <= 0: 2^k times a polynomial on half a power of two either way; zero where it nears the subnormal numbers, whose
 * arithmetic is a hundred times slower. */
static INLINE REAL NAME(exp_)(REAL x) {
    const int nothing = x < (REAL)LOWEST;
    x = nothing ? (REAL)LOWEST : x;
    REAL power = x * (REAL)1.4426950408889634 + MAGIC; /* whose last bits are k and the bias */
    REAL k = power - MAGIC;
#ifdef DOUBLE
    const REAL r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
#else
    const REAL r = x - k * 0.69314718055994531f;
#endif
    REAL p = (REAL)(1 / factorials[TERMS]);
    UNROLL for (int i = TERMS - 1; i >= 0; i--) p = p * r + (REAL)(1 / factorials[i]);
    BITS bits;
    memcpy(&bits, &power, sizeof bits);
    bits <<= MANTISSA;
    memcpy(&power, &bits, sizeof power);
    return nothing ? 0 : p * power;
}

/* log x for x >= 1: the exponent, and a series in (y - 1) / (y + 1) for y near one. */
static INLINE REAL NAME(log_)(REAL x) {
    BITS bits;
    memcpy(&bits, &x, sizeof bits);
    BITS shift = (BITS)1 << (MANTISSA - 1);
    BITS e = ((bits + shift) >> MANTISSA) - BIAS; /* y within 3/4 .. 3/2 */
    bits -= e << MANTISSA;
    REAL y;
    memcpy(&y, &bits, sizeof y);
    REAL s = (y - 1) / (y + 1), q = s * s, p = (REAL)1 / (2 * TERMS + 1);
    UNROLL for (int i = TERMS - 1; i >= 0; i--) p = p * q + (REAL)1 / (REAL)(2 * i + 1);
    return (REAL)(int)e * (REAL)0.69314718055994531 + 2 * s * p;
}

/* x^exponent for exponents 0 .. 15, by squares and without branches. */
static INLINE REAL NAME(raised)(REAL x, int exponent) {
    const REAL x2 = x * x, x4 = x2 * x2, x8 = x4 * x4;
    return (exponent & 1 ? x : 1) * (exponent & 2 ? x2 : 1) * ((exponent & 4 ? x4 : 1) * (exponent & 8 ? x8 : 1));
}

/* f(t); `profile` is a constant wherever this is inlined. */
static INLINE REAL NAME(value)(REAL t, const int profile, REAL alpha) {
    if (profile == POWER) return NAME(raised)(t, (int)alpha);
    t = t < 0 ? 0 : t;
    if (profile == RBF) return NAME(exp_)((REAL)-0.5 * t);
    if (profile == RATIONAL_QUADRATIC) {
        const REAL base = 1 + t / (2 * alpha), power = NAME(exp_)(-alpha * NAME(log_)(base));
        return base == base ? power : base; /* the logarithm takes a NaN's bits for a number */
    }
    if (profile == MATERN12) return NAME(exp_)(-sqrt(t));
    if (profile == MATERN32) {
        REAL r = sqrt((REAL)3 * t);
        return (1 + r) * NAME(exp_)(-r);
    }
    REAL r = sqrt((REAL)5 * t);
    return (1 + r * (1 + r * ((REAL)1 / 3))) * NAME(exp_)(-r);
}

/* f'(t); f(t) and df/dalpha go to *f and *turned. */
static INLINE REAL NAME(slope)(REAL t, const int profile, REAL alpha, REAL *f, REAL *turned) {
    *turned = 0;
    if (profile == POWER) {
        int power = (int)alpha;
        REAL below = power > 0 ? NAME(raised)(t, power - 1) : 0;
        *f = power > 0 ? below * t : 1;
        return (REAL)power * below;
    }
    t = t < 0 ? 0 : t;
    if (profile == RBF) {
        *f = NAME(exp_)((REAL)-0.5 * t);
        return (REAL)-0.5 * *f;
    }
    if (profile == RATIONAL_QUADRATIC) {
        REAL base = 1 + t / (2 * alpha), logarithm = NAME(log_)(base);
        *f = NAME(exp_)(-alpha * logarithm);
        *f = base == base ? *f : base;
        *turned = *f * ((base - 1) / base - logarithm);
        return (REAL)-0.5 * *f / base;
    }
    if (profile == MATERN12) {
        REAL r = sqrt(t);
        *f = NAME(exp_)(-r);
        return r < (REAL)TINY ? 0 : (REAL)-0.5 * *f / r; /* a kink: no direction is up */
    }
    if (profile == MATERN32) {
        REAL r = sqrt((REAL)3 * t), e = NAME(exp_)(-r);
        *f = (1 + r) * e;
        return (REAL)-1.5 * e;
    }
    REAL r = sqrt((REAL)5 * t), e = NAME(exp_)(-r);
    *f = (1 + r * (1 + r * ((REAL)1 / 3))) * e;
    return (REAL)(-5.0 / 6) * (1 + r) * e;
}

#define EVERY_PROFILE(call)                                   \
    switch (p->profile) {                                     \
    case RBF: call(RBF); break;                               \
    case MATERN12: call(MATERN12); break;                     \
    case MATERN32: call(MATERN32); break;                     \
    case MATERN52: call(MATERN52); break;                     \
    case RATIONAL_QUADRATIC: call(RATIONAL_QUADRATIC); break; \
    default: call(POWER);                                     \
    }

/* call(ways) for up to three ways of negation */
#define EVERY_WAY(call)        \
    switch (p->ways) {         \
    case 0: call(0); break;    \
    case 1: call(1); break;    \
    case 2: call(2); break;    \
    default: call(3);          \
    }

/* f of the numbers first .. last, in place. */
int NAME(harmonicgp_values)(const Problem *p, int64_t first, int64_t last, REAL *restrict t) {
    const REAL alpha = (REAL)p->parameter;
#define CALL(profile) \
    for (int64_t j = first; j < last; j++) t[j] = NAME(value)(t[j], profile, alpha)
    EVERY_PROFILE(CALL)
#undef CALL
    return 0;
}

/* The numbers first .. last of t become g f'(t); sum g f(t) joins totals[0], sum g df/dalpha totals[1]. */
int NAME(harmonicgp_slopes)(const Problem *p, int64_t first, int64_t last, REAL *restrict t, const REAL *restrict g,
                            double *totals) {
    const REAL alpha = (REAL)p->parameter;
    for (; first < last; first += SHORT) {
        const int64_t end = last - first < SHORT ? last : first + SHORT;
        REAL total = 0, turned = 0;
#define CALL(profile)                                                       \
    SUM(total, turned)                                                      \
    for (int64_t j = first; j < end; j++) {                                 \
        REAL f, turn, slope = NAME(slope)(t[j], profile, alpha, &f, &turn); \
        total += g[j] * f;                                                  \
        turned += g[j] * turn;                                              \
        t[j] = g[j] * slope;                                                \
    }
        EVERY_PROFILE(CALL)
#undef CALL
        totals[0] += total;
        totals[1] += turned;
    }
    return 0;
}

/* Negations in up to three ways, all in registers: t_s = base +- x +- y +- z, profile, butterflies. There is a minus where the bit of
 * a way is set in s; the first way has the highest bit. `ways` is a constant wherever these are inlined. */
static INLINE void NAME(signs)(const int ways, const REAL *restrict base, const REAL *restrict inner, int64_t j, REAL *t) {
    t[0] = base[j];
    UNROLL for (int k = 0; k < ways; k++)
        UNROLL for (int s = 0; s < 1 << ways; s += 2 << (ways - 1 - k)) {
            t[s + (1 << (ways - 1 - k))] = t[s] - inner[k * CHUNK + j];
            t[s] += inner[k * CHUNK + j];
        }
}

static INLINE void NAME(walsh)(const int ways, REAL *t) {
    UNROLL for (int k = 0; k < ways; k++)
        UNROLL for (int s = 0; s < 1 << ways; s++)
            if (!(s >> k & 1)) {
                const REAL sum = t[s] + t[s + (1 << k)];
                t[s + (1 << k)] = t[s] - t[s + (1 << k)];
                t[s] = sum;
            }
}

static INLINE void NAME(negated)(const int ways, const Problem *p, const REAL *restrict base, const REAL *restrict inner,
                                 int64_t c, REAL *restrict out) {
    const REAL alpha = (REAL)p->parameter, scale = (REAL)p->scale / (REAL)p->order;
    const int64_t apart = p->m * p->n;
#define CALL(profile)                                                                                \
    SIMD                                                                                             \
    for (int64_t j = 0; j < c; j++) {                                                                \
        REAL t[1 << MOST_WAYS];                                                                      \
        NAME(signs)(ways, base, inner, j, t);                                                        \
        UNROLL for (int s = 0; s < 1 << ways; s++) t[s] = scale * NAME(value)(t[s], profile, alpha); \
        NAME(walsh)(ways, t);                                                                        \
        UNROLL for (int s = 0; s < 1 << ways; s++) out[j + s * apart] = t[s];                        \
    }
    EVERY_PROFILE(CALL)
#undef CALL
}

/* On the way back, in three loops that stay in the first-level cache (compilers do not vectorise all of it in one): the arguments
 * t_s and the gradients g_s of every element; `slopes`, which makes g_s f'(t_s) of t_s; and the gradients of base, to `all`, and of each
 * part, to back[part]: the Walsh coefficient of a single way is what belongs to it. */
static INLINE void NAME(spread)(const int ways, const Problem *p, const REAL *restrict base, const REAL *restrict inner, int64_t c,
                                const REAL *restrict from, REAL *restrict t, REAL *restrict g) {
    const REAL shrink = (REAL)1 / (REAL)p->order;
    const int64_t apart = p->m * p->n;
    SIMD
    for (int64_t j = 0; j < c; j++) {
        REAL arguments[1 << MOST_WAYS], gradients[1 << MOST_WAYS];
        UNROLL for (int s = 0; s < 1 << ways; s++) gradients[s] = shrink * from[j + s * apart];
        NAME(walsh)(ways, gradients);
        NAME(signs)(ways, base, inner, j, arguments);
        UNROLL for (int s = 0; s < 1 << ways; s++) {
            t[s * CHUNK + j] = arguments[s];
            g[s * CHUNK + j] = gradients[s];
        }
    }
}

static INLINE void NAME(collected)(const int ways, const REAL *restrict t, int64_t c, REAL *restrict all, REAL *restrict back) {
    SIMD
    for (int64_t j = 0; j < c; j++) {
        REAL own[1 << MOST_WAYS];
        UNROLL for (int s = 0; s < 1 << ways; s++) own[s] = t[s * CHUNK + j];
        NAME(walsh)(ways, own);
        all[j] = own[0];
        UNROLL for (int k = 0; k < ways; k++) back[k * CHUNK + j] = own[1 << (ways - 1 - k)];
    }
}

/* The Walsh-Hadamard transform over s, in place; bit k of s is the way of stride 2^k. */
static void NAME(butterflies)(REAL *restrict t, int64_t order, int64_t c) {
    for (int64_t half = 1; half < order; half *= 2)
        for (int64_t start = 0; start < order; start += 2 * half)
            for (int64_t s = start; s < start + half; s++) {
                REAL *restrict x = t + s * CHUNK, *restrict y = t + (s + half) * CHUNK;
                for (int64_t j = 0; j < c; j++) {
                    REAL sum = x[j] + y[j], difference = x[j] - y[j];
                    x[j] = sum;
                    y[j] = difference;
                }
            }
}

/* The inner products of row i with columns start .. start + c, part by part, and what all elements share. */
static void NAME(products)(const Problem *p, const REAL *a, const REAL *b, const REAL *U, const REAL *V, const REAL *comps,
                           const int64_t *ends, int64_t i, int64_t start, int64_t c, REAL *restrict inner,
                           REAL *restrict base) {
    int64_t r = 0;
    for (int64_t k = 0; k < p->parts; k++) {
        REAL *restrict into = inner + k * CHUNK;
        if (comps) {
            memcpy(into, comps + (k * p->m + i) * p->n + start, (size_t)c * sizeof(REAL));
            continue;
        }
        const REAL *restrict first = V + r * p->n + start;
        REAL u = U[i * p->width + r];
        for (int64_t j = 0; j < c; j++) into[j] = u * first[j];
        for (r++; r < ends[k]; r++) {
            const REAL *restrict v = V + r * p->n + start;
            u = U[i * p->width + r];
            for (int64_t j = 0; j < c; j++) into[j] += u * v[j];
        }
    }
    const REAL *restrict columns = b + start;
    const REAL own = a[i];
    for (int64_t j = 0; j < c; j++) base[j] = own + columns[j];
    if (p->rest) { /* the first part moves with no element */
        const REAL *restrict still = inner;
        for (int64_t j = 0; j < c; j++) base[j] += still[j];
    }
}

/* t[s] = base + sum_k C[s][k] inner[k] over the parts that move */
static void NAME(arguments)(const Problem *p, const REAL *C, const REAL *restrict base, const REAL *restrict inner, int64_t c,
                            REAL *restrict t) {
    for (int64_t s = 0; s < p->order; s++) {
        REAL *restrict into = t + s * CHUNK;
        const REAL *weights = C + s * p->parts + p->rest, *restrict x = inner + p->rest * CHUNK;
        int64_t k = p->parts - p->rest;
        if (k == 2) { /* rotations of a plane */
            const REAL *restrict y = x + CHUNK;
            const REAL wx = weights[0], wy = weights[1];
            for (int64_t j = 0; j < c; j++) into[j] = base[j] + wx * x[j] + wy * y[j];
            continue;
        }
        memcpy(into, base, (size_t)c * sizeof(REAL));
        for (; k > 0; k--, weights++, x += CHUNK) {
            const REAL w = *weights;
            for (int64_t j = 0; j < c; j++) into[j] += w * x[j];
        }
    }
}

/* into = sum_s w[s apart] t[s] */
static void NAME(weighed)(const REAL *restrict w, int64_t apart, const REAL *restrict t, int64_t order, int64_t c,
                          REAL *restrict into) {
    for (int64_t j = 0; j < c; j++) into[j] = w[0] * t[j];
    for (int64_t s = 1; s < order; s++) {
        const REAL *restrict x = t + s * CHUNK;
        const REAL weight = w[s * apart];
        for (int64_t j = 0; j < c; j++) into[j] += weight * x[j];
    }
}

/* Rows first .. last of real [reals][m][n] and complex [pairs][m][n][2]; W is [reals + 2 pairs][order], imaginary after real. */
int NAME(harmonicgp_forward)(const Problem *p, int64_t first, int64_t last, const REAL *a, const REAL *b, const REAL *U,
                             const REAL *V, const REAL *comps, const int64_t *ends, const REAL *C, const REAL *W, REAL *real,
                             REAL *complex_) {
    REAL *work = malloc((size_t)(p->order + p->parts + 3) * CHUNK * sizeof(REAL));
    if (!work) return 1;
    REAL *t = work, *inner = t + p->order * CHUNK, *one = inner + p->parts * CHUNK, *two = one + CHUNK, *base = two + CHUNK;
    REAL scale = (REAL)p->scale / (p->ways ? (REAL)p->order : 1);
    for (int64_t i = first; i < last; i++)
        for (int64_t start = 0; start < p->n; start += CHUNK) {
            int64_t c = p->n - start < CHUNK ? p->n - start : CHUNK;
            NAME(products)(p, a, b, U, V, comps, ends, i, start, c, inner, base);
            if (p->negation && p->ways <= MOST_WAYS) {
                const REAL *moving = inner + p->rest * CHUNK;
                REAL *into = real + i * p->n + start;
#define NEGATED(ways) NAME(negated)(ways, p, base, moving, c, into)
                EVERY_WAY(NEGATED)
#undef NEGATED
                continue;
            }
            NAME(arguments)(p, C, base, inner, c, t);
            const int64_t together = c == CHUNK ? p->order : 1;
            for (int64_t s = 0; s < p->order; s += together)
                NAME(harmonicgp_values)(p, s * CHUNK, (s + together - 1) * CHUNK + c, t);
            if (p->ways) NAME(butterflies)(t, p->order, c);
            for (int64_t o = 0; o < p->reals; o++) {
                const REAL *restrict from = t + o * CHUNK;
                REAL *restrict into = real + (o * p->m + i) * p->n + start;
                if (!p->ways) {
                    NAME(weighed)(W + o * p->order, 1, t, p->order, c, one);
                    from = one;
                }
                for (int64_t j = 0; j < c; j++) into[j] = scale * from[j];
            }
            for (int64_t o = 0; o < p->pairs; o++) {
                const REAL *w = W + (p->reals + o) * p->order;
                REAL *restrict into = complex_ + 2 * ((o * p->m + i) * p->n + start);
                NAME(weighed)(w, 1, t, p->order, c, one);
                NAME(weighed)(w + p->pairs * p->order, 1, t, p->order, c, two);
                for (int64_t j = 0; j < c; j++) {
                    into[2 * j] = scale * one[j];
                    into[2 * j + 1] = scale * two[j];
                }
            }
        }
    free(work);
    return 0;
}

/* The gradients of the outputs brought back to every s: g[s] = sum_o W[o][s] gradient[o]; one and two are work space. */
static void NAME(gathered)(const Problem *p, const REAL *W, const REAL *real, const REAL *complex_, int64_t i, int64_t start,
                           int64_t c, REAL *restrict g, REAL *restrict one, REAL *restrict two) {
    if (p->ways) {
        const REAL shrink = (REAL)1 / (REAL)p->order;
        for (int64_t s = 0; s < p->order; s++) {
            const REAL *restrict from = real + (s * p->m + i) * p->n + start;
            REAL *restrict into = g + s * CHUNK;
            for (int64_t j = 0; j < c; j++) into[j] = shrink * from[j];
        }
        NAME(butterflies)(g, p->order, c);
        return;
    }
    memset(g, 0, (size_t)(p->order * CHUNK) * sizeof(REAL));
    for (int64_t o = 0; o < p->reals; o++) {
        const REAL *restrict from = real + (o * p->m + i) * p->n + start;
        for (int64_t s = 0; s < p->order; s++) {
            REAL *restrict into = g + s * CHUNK;
            const REAL w = W[o * p->order + s];
            for (int64_t j = 0; j < c; j++) into[j] += w * from[j];
        }
    }
    for (int64_t o = 0; o < p->pairs; o++) {
        const REAL *restrict from = complex_ + 2 * ((o * p->m + i) * p->n + start);
        const REAL *w = W + (p->reals + o) * p->order, *v = w + p->pairs * p->order;
        for (int64_t j = 0; j < c; j++) {
            one[j] = from[2 * j];
            two[j] = from[2 * j + 1];
        }
        for (int64_t s = 0; s < p->order; s++) {
            REAL *restrict into = g + s * CHUNK;
            const REAL x = w[s], y = v[s];
            for (int64_t j = 0; j < c; j++) into[j] += x * one[j] + y * two[j];
        }
    }
}

/* Gradients of rows first .. last: by_a [m] and by_U [m][width] are written, by_b [n] and by_V [width][n] added to, and so are
 * totals = (sum of gradient * out / scale, sum by the profile's parameter). With comps, by_comps [parts][m][n] is written in place
 * of by_U and by_V. */
int NAME(harmonicgp_backward)(const Problem *p, int64_t first, int64_t last, const REAL *a, const REAL *b, const REAL *U,
                              const REAL *V, const REAL *comps, const int64_t *ends, const REAL *C, const REAL *W,
                              const REAL *real, const REAL *complex_, REAL *by_a, REAL *by_b, REAL *by_U, REAL *by_V,
                              REAL *by_comps, double *totals) {
    REAL *work = malloc((size_t)(2 * p->order + 2 * p->parts + 3) * CHUNK * sizeof(REAL));
    if (!work) return 1;
    REAL *t = work, *g = t + p->order * CHUNK, *inner = g + p->order * CHUNK, *back = inner + p->parts * CHUNK;
    REAL *one = back + p->parts * CHUNK, *two = one + CHUNK, *base = two + CHUNK;
    const REAL scale = (REAL)p->scale;
    for (int64_t i = first; i < last; i++) {
        REAL row = 0;
        if (!comps) memset(by_U + i * p->width, 0, (size_t)p->width * sizeof(REAL));
        for (int64_t start = 0; start < p->n; start += CHUNK) {
            int64_t c = p->n - start < CHUNK ? p->n - start : CHUNK;
            NAME(products)(p, a, b, U, V, comps, ends, i, start, c, inner, base);
            const int fused = p->negation && p->ways <= MOST_WAYS;
            const REAL *moving = inner + p->rest * CHUNK, *from = real + i * p->n + start;
            REAL *parts = back + p->rest * CHUNK;
#define SPREAD(ways) NAME(spread)(ways, p, base, moving, c, from, t, g)
            if (fused) {
                EVERY_WAY(SPREAD)
            } else {
                NAME(arguments)(p, C, base, inner, c, t);
                NAME(gathered)(p, W, real, complex_, i, start, c, g, one, two);
            }
#undef SPREAD
            const int64_t together = c == CHUNK ? p->order : 1;
            for (int64_t s = 0; s < p->order; s += together)
                NAME(harmonicgp_slopes)(p, s * CHUNK, (s + together - 1) * CHUNK + c, t, g, totals);
#define COLLECT(ways) NAME(collected)(ways, t, c, one, parts)
            if (fused) {
                EVERY_WAY(COLLECT)
                if (p->rest) memcpy(back, one, (size_t)c * sizeof(REAL));
            } else {
                const REAL every = 1;
                NAME(weighed)(&every, 0, t, p->order, c, one);
            }
#undef COLLECT
            REAL *restrict columns = by_b + start;
            SUM(row)
            for (int64_t j = 0; j < c; j++) {
                one[j] *= scale;
                columns[j] += one[j];
                row += one[j];
            }
            int64_t r = 0;
            for (int64_t k = 0; k < p->parts; k++) {
                REAL *restrict e = back + k * CHUNK;
                if (!fused) NAME(weighed)(C + k, p->parts, t, p->order, c, e);
                if (comps) {
                    REAL *restrict into = by_comps + (k * p->m + i) * p->n + start;
                    for (int64_t j = 0; j < c; j++) into[j] = scale * e[j];
                    continue;
                }
                for (; r < ends[k]; r++) {
                    const REAL *restrict v = V + r * p->n + start;
                    REAL *restrict into = by_V + r * p->n + start;
                    REAL u = scale * U[i * p->width + r], dot = 0;
                    SUM(dot)
                    for (int64_t j = 0; j < c; j++) {
                        dot += e[j] * v[j];
                        into[j] += u * e[j];
                    }
                    by_U[i * p->width + r] += scale * dot;
                }
            }
        }
        by_a[i] = row;
    }
    free(work);
    return 0;
}

#undef NAME

#endif
