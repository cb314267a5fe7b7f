/* signal.c - learns the causal filter that turns one signal into another, saves it and loads it.
**     cc signal.c $(pkg-config --cflags --libs toeplab-lab) -o signal && ./signal */
#include <stdio.h>
#include <stdlib.h>
#include <toeplab-lab.h>

static tl_ctx *ctx;

static void must(tl_status st) /* succeed */
{
    if (st == TL_OK) return;
    fprintf(stderr, "signal: %s\n", tl_errmsg(ctx));
    tl_ctx_free(ctx);
    exit(1);
}

/* Returns the mean square of the error, and gives filter its gradient if it requires one. */
static float loss_of(tl_tno *tno, tl_tensor *filter, tl_tensor *x, tl_tensor *want)
{
    tl_tensor *y, *error, *squares, *loss;
    int        scope = tl_scope_begin(ctx);
    must(tl_tno_apply(tno, filter, NULL, x, &y));
    must(tl_binary(TL_BINARY_SUB, y, want, &error));
    must(tl_unary(TL_UNARY_square, error, &squares));
    must(tl_reduce(TL_REDUCE_MEAN, squares, TL_ALL_AXES, 0, &loss));
    if (tl_requires_grad(filter)) must(tl_backward(ctx, loss));
    float value = tl_tensor_cf32(loss)[0];
    tl_scope_end(ctx, scope); /* frees the four */
    return value;
}

int main(void)
{
    const int64_t n = 64, x_dims[] = {8, n, 1}, filter_dims[] = {n, 1}; /* [b,n,d], [lags,d] */
    tl_adam_options adam = {.bytes = sizeof adam, .kind = TL_ADAM_L2, .lr = 0.01, .beta1 = 0.9,
                            .beta2 = 0.999, .eps = 1e-8};
    tl_stream  s = tl_stream_new(1, "signal");
    tl_tno    *tno;
    tl_tensor *x, *want, *truth, *filter, *m, *v, *loaded;
    tl_h5     *file;
    if (tl_ctx_new(1, &ctx) != TL_OK) return 1;
    (void)tl_scope_begin(ctx); /* tl_ctx_free ends it */
    must(tl_tno_new(ctx, "rac", n, 1, 1, NULL, &tno));
    must(tl_tensor_new(ctx, TL_F32, 3, x_dims, &x));
    must(tl_random_normal(x, &s, 0, 1));
    tl_tensor **const made[] = {&truth, &filter, &m, &v};
    for (int i = 0; i < 4; i++) must(tl_tensor_new(ctx, TL_F32, 2, filter_dims, made[i]));
    for (int k = 0; k < n; k++) tl_tensor_f32(truth)[k] = k % 2 ? -0.5f / (float)k : 0.5f;
    must(tl_tno_apply(tno, truth, NULL, x, &want));

    must(tl_set_requires_grad(filter, 1));
    for (adam.step = 1; adam.step <= 300; adam.step++) {
        float loss = loss_of(tno, filter, x, want);
        if (adam.step % 100 == 1) printf("step %3d loss %.3f\n", (int)adam.step, (double)loss);
        must(tl_adam_step(&filter, &m, &v, 1, &adam, 1));
        must(tl_set_grad(filter, NULL));
    }
    must(tl_h5_write(ctx, "filter.h5", 1, (const char *[]){"filter"}, &filter, 0, NULL, 0));
    must(tl_h5_open(ctx, "filter.h5", &file));
    must(tl_h5_read(file, "filter", &loaded));
    printf("loss of the loaded filter %.3f\n", (double)loss_of(tno, loaded, x, want));
    tl_h5_close(file);
    tl_tno_free(tno);
    tl_ctx_free(ctx);
    return 0;
}
