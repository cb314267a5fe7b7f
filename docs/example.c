/* example.c - applies a Toeplitz neural operator from C: a causal kernel t_k = 0.5^k for each of
** two channels mixes an impulse of four tokens, and a gradient flows back to the kernel. */
#include <stdio.h>
#include <toeplab.h>

enum { n = 4, d = 2 };

/* Returns whether a call succeeded; otherwise prints the message that the context keeps. */
static int fine(tl_ctx *ctx, tl_status st)
{
    if (st != TL_OK) fprintf(stderr, "%s: %s\n", tl_status_name(st), tl_errmsg(ctx));
    return st == TL_OK;
}

/* Fills coef [n,d] with the kernel and x [1,n,d] with an impulse at the first token. */
static void fill(tl_tensor *coef, tl_tensor *x)
{
    float *t = tl_tensor_f32(coef);
    for (int c = 0; c < d; c++) {
        t[c] = 1;
        for (int k = 1; k < n; k++) t[k * d + c] = t[(k - 1) * d + c] / 2;
        tl_tensor_f32(x)[c] = (float)(c + 1);
    }
}

static void print_rows(const char *name, tl_tensor *t)
{
    const float *values = tl_tensor_cf32(t);
    printf("%s\n", name);
    for (int i = 0; i < n; i++) printf("  %6.3f %6.3f\n", values[i * d], values[i * d + 1]);
}

/* y = T x, then the gradient of the sum of y with respect to the kernel. */
static int mix(tl_ctx *ctx)
{
    tl_tno       *tno = NULL;
    tl_tensor    *coef = NULL, *x = NULL, *y = NULL, *sum = NULL;
    const int64_t kernel[] = {n, d}, tokens[] = {1, n, d};
    int ok = fine(ctx, tl_tno_new(ctx, "rac", n, d, 1, NULL, &tno)) &&
             fine(ctx, tl_tensor_new(ctx, TL_F32, 2, kernel, &coef)) &&
             fine(ctx, tl_tensor_new(ctx, TL_F32, 3, tokens, &x));
    if (ok) fill(coef, x);
    ok = ok && fine(ctx, tl_set_requires_grad(coef, 1)) &&
         fine(ctx, tl_tno_apply(tno, coef, NULL, x, &y)) &&
         fine(ctx, tl_reduce(TL_REDUCE_SUM, y, TL_ALL_AXES, 0, &sum)) &&
         fine(ctx, tl_backward(ctx, sum));
    if (ok) {
        printf("backend %s, coefficients by %s\n", tl_tno_backend_name(tno), tl_tno_domain(tno));
        print_rows("y", y);
        print_rows("gradient of the kernel", tl_grad(coef));
    }
    tl_tensor_free(sum);
    tl_tensor_free(y);
    tl_tensor_free(x);
    tl_tensor_free(coef);
    tl_tno_free(tno);
    return ok;
}

int main(void)
{
    tl_ctx *ctx = NULL;
    if (tl_ctx_new(1, &ctx) != TL_OK) return 1;
    int ok = mix(ctx);
    tl_ctx_free(ctx);
    return !ok;
}
