/* operations.h - the differentiable operators in the one form that tables of test cases call. */
#ifndef TL_OPERATIONS_H
#define TL_OPERATIONS_H

#include "gradients.h"

#define RUN(name) \
    static inline tl_status name(const gradient_case *c, tl_tensor *const *in, tl_tensor **out)

/* An int32 tensor of values i * 7 % bound, or -1 where i % 3 is 2 and holes are wanted. */
static inline tl_status indices(tl_ctx *ctx, int ndim, const int64_t *dims, int64_t bound,
                                int holes, tl_tensor **out)
{
    tl_status st = tl_tensor_new(ctx, TL_I32, ndim, dims, out);
    for (int64_t i = 0; st == TL_OK && i < tl_tensor_len(*out); i++)
        tl_tensor_i32(*out)[i] = holes && i % 3 == 2 ? -1 : (int32_t)(i * 7 % bound);
    return st;
}

RUN(unary) { return tl_unary((tl_unary_kind)c->i[0], in[0], out); }
RUN(binary) { return tl_binary((tl_binary_kind)c->i[0], in[0], in[1], out); }
RUN(affine) { return tl_affine(in[0], c->f[0], c->f[1], out); }
RUN(gate) { return tl_gate((tl_unary_kind)c->i[0], in[0], in[1], out); }
RUN(matmul) { return tl_matmul(in[0], (int)c->i[0], in[1], (int)c->i[1], out); }
RUN(linear) { return tl_linear(in[0], in[1], c->inputs > 2 ? in[2] : NULL, out); }
RUN(cumsum) { return tl_cumsum(in[0], (int)c->i[0], out); }
RUN(softmax) { return tl_softmax(in[0], (int)c->i[0], out); }
RUN(log_softmax) { return (void)c, tl_log_softmax(in[0], out); }
RUN(rms_norm) { return tl_rms_norm(in[0], c->inputs > 1 ? in[1] : NULL, c->f[0], out); }
RUN(simple_rms_norm) { return tl_simple_rms_norm(in[0], c->f[0], out); }
RUN(scale_norm) { return tl_scale_norm(in[0], in[1], c->f[0], out); }
RUN(conv) { return tl_depthwise_conv(in[0], in[1], c->i[0], out); }
RUN(concat) { return tl_concat(tl_tensor_ctx(in[0]), in, c->inputs, (int)c->i[0], out); }
RUN(slice) { return tl_slice(in[0], (int)c->i[0], c->i[1], c->i[2], out); }
RUN(fft) { return tl_fft(in[0], (int)c->i[0], (int)c->i[1], out); }
RUN(rfft) { return tl_rfft(in[0], (int)c->i[0], out); }
RUN(irfft) { return tl_irfft(in[0], (int)c->i[0], c->i[1], out); }

/* x, delta, a, b, c, perhaps skip */
RUN(selective)
{
    return tl_selective_scan(in[0], in[1], in[2], in[3], in[4], c->inputs > 5 ? in[5] : NULL, out);
}

RUN(linear_recurrence) { return (void)c, tl_linear_recurrence(in[0], in[1], in[2], in[3], out); }

/* v and the poles; i: the number of nodes, right of the poles of NEGATIVE, and whether in pairs */
RUN(cauchy)
{
    tl_tensor *nodes = NULL;
    tl_status  st = tl_tensor_new(tl_tensor_ctx(in[0]), TL_F32, 2, (const int64_t[]){c->i[0], 2},
                                  &nodes);
    for (int64_t k = 0; st == TL_OK && k < c->i[0]; k++) {
        tl_tensor_f32(nodes)[2 * k] = (float)(k % 3) / 4;
        tl_tensor_f32(nodes)[2 * k + 1] = (float)(k - c->i[0] / 2) / 8;
    }
    if (st == TL_OK) st = tl_cauchy(in[0], in[1], nodes, (int)c->i[1], out);
    tl_tensor_free(nodes);
    return st;
}

/* v, poles, nodes */
RUN(cauchy_of) { return (void)c, tl_cauchy(in[0], in[1], in[2], 1, out); }

/* q, k, v, perhaps the bias; i: causal, the window */
RUN(attention)
{
    tl_attention_options o = {.bytes = sizeof o, .scale = 0.7, .causal = (int)c->i[0],
                              .window = c->i[1], .bias = c->inputs > 3 ? in[3] : NULL};
    return tl_attention(in[0], in[1], in[2], &o, out);
}

RUN(layer_norm)
{
    return tl_layer_norm(in[0], c->inputs > 1 ? in[1] : NULL, c->inputs > 2 ? in[2] : NULL,
                         c->f[0], out);
}

RUN(reduce)
{
    return tl_reduce((tl_reduce_kind)c->i[0], in[0], (int)c->i[1], (int)c->i[2], out);
}

/* i: the new dimensions, ended by 0 */
RUN(reshape)
{
    int ndim = 0;
    while (ndim < 4 && c->i[ndim] != 0) ndim++;
    return tl_reshape(in[0], ndim, c->i, out);
}

RUN(transpose)
{
    int axes[4];
    for (int i = 0; i < 4; i++) axes[i] = (int)c->i[i];
    return tl_transpose(in[0], axes, out);
}

/* i: the dimensions of the index, 0: one less */
RUN(gather)
{
    tl_tensor *index = NULL;
    tl_status  st = indices(tl_tensor_ctx(in[0]), c->i[1] ? 2 : 1, c->i, tl_tensor_dim(in[0], 0), 0,
                            &index);
    if (st == TL_OK) st = tl_gather(in[0], index, out);
    tl_tensor_free(index);
    return st;
}

/* i: how many rows of each table; the tables have two axes */
RUN(batch_gather)
{
    tl_tensor *index = NULL;
    int        batch = tl_tensor_ndim(in[0]) - 2;
    int64_t    dims[TL_MAXDIMS];
    for (int i = 0; i < batch; i++) dims[i] = tl_tensor_dim(in[0], i);
    dims[batch] = c->i[0];
    tl_status st = indices(tl_tensor_ctx(in[0]), batch + 1, dims, tl_tensor_dim(in[0], batch), 0,
                           &index);
    if (st == TL_OK) st = tl_batch_gather(in[0], index, out);
    tl_tensor_free(index);
    return st;
}

/* i: whether some rows are ignored; one input: logits; more: x, w and perhaps bias */
RUN(cross_entropy)
{
    tl_tensor *x = in[0], *targets = NULL;
    int64_t    dims[TL_MAXDIMS], v = c->inputs > 1 ? tl_tensor_dim(in[1], 0) : tl_tensor_dim(x, -1);
    int        ndim = tl_tensor_ndim(x) - 1;
    for (int i = 0; i < ndim; i++) dims[i] = tl_tensor_dim(x, i);
    tl_status st = indices(tl_tensor_ctx(x), ndim, dims, v, c->i[0] != 0, &targets);
    if (st == TL_OK && c->inputs == 1) st = tl_cross_entropy(x, targets, -1, out);
    if (st == TL_OK && c->inputs > 1)
        st = tl_linear_cross_entropy(x, in[1], c->inputs > 2 ? in[2] : NULL, targets, -1, out);
    tl_tensor_free(targets);
    return st;
}

/* i: training; the running statistics are the same at each call */
RUN(batch_norm)
{
    tl_ctx    *ctx = tl_tensor_ctx(in[0]);
    tl_tensor *mean = NULL, *var = NULL;
    int64_t    d = tl_tensor_dim(in[0], -1);
    tl_status  st = tl_tensor_new(ctx, TL_F32, 1, &d, &mean);
    if (st == TL_OK) st = tl_tensor_new(ctx, TL_F32, 1, &d, &var);
    if (st == TL_OK) st = tl_tensor_fill(mean, 0.25);
    if (st == TL_OK) st = tl_tensor_fill(var, 2);
    if (st == TL_OK)
        st = tl_batch_norm(in[0], c->inputs > 1 ? in[1] : NULL, c->inputs > 2 ? in[2] : NULL, mean,
                           var, (int)c->i[0], 0.1, 0.1, out);
    tl_tensor_free(mean);
    tl_tensor_free(var);
    return st;
}

RUN(dropout)
{
    tl_stream s = tl_stream_new(3, "dropout");
    return tl_dropout(in[0], c->f[0], &s, out);
}

/* coef, gamma; the lags are -1, 0, 1, .. */
RUN(decay)
{
    tl_ctx    *ctx = tl_tensor_ctx(in[0]);
    int64_t    p = tl_tensor_dim(in[0], 0);
    tl_tensor *lags = NULL;
    tl_status  st = tl_tensor_new(ctx, TL_F32, 1, &p, &lags);
    for (int64_t i = 0; st == TL_OK && i < p; i++) tl_tensor_f32(lags)[i] = (float)(i - 1);
    if (st == TL_OK) st = tl_decay(in[0], lags, in[1], out);
    (void)c;
    tl_tensor_free(lags);
    return st;
}

/* i: the norm, the activation, whether residual, and how many layers; f: eps, and whether rows are
** scaled; inputs: x, a weight and a bias for each layer, then those of the last one's norm */
RUN(mlp)
{
    tl_mlp_layer layers[4] = {{0}};
    int          count = (int)c->i[3];
    int64_t      p = tl_tensor_dim(in[0], 0);
    tl_tensor   *scale = NULL;
    tl_status    st = TL_OK;
    for (int l = 0; l < count; l++) {
        layers[l] = (tl_mlp_layer){.weight = in[1 + 2 * l], .bias = in[2 + 2 * l]};
        if (l > 0) layers[l].norm = (tl_norm_kind)c->i[0];
        layers[l].eps = c->f[0];
    }
    if (c->inputs > 1 + 2 * count) layers[count - 1].norm_weight = in[1 + 2 * count];
    if (c->inputs > 2 + 2 * count) layers[count - 1].norm_bias = in[2 + 2 * count];
    if (c->f[1] != 0) st = tl_tensor_new(tl_tensor_ctx(in[0]), TL_F32, 1, &p, &scale);
    if (st == TL_OK && c->f[1] < 0) st = tl_set_requires_grad(scale, 1); /* which it cannot have */
    for (int64_t r = 0; scale && r < p; r++) tl_tensor_f32(scale)[r] = 1.5f / (float)(r + 1);
    if (st == TL_OK)
        st = tl_mlp(in[0], layers, count, (tl_unary_kind)c->i[1], (int)c->i[2], scale, out);
    tl_tensor_free(scale);
    return st;
}

/* p: the operator; inputs: x, coef, its own parameters */
RUN(tno) { return tl_tno_apply(c->p, in[1], in + 2, in[0], out); }

#endif
