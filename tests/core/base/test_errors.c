/* test_errors.c - wrong shapes and types are refused with a status and a message that says which;
** tensors without elements are not. */
#include <limits.h>

#include "gradients.h"
#include "operations.h"
#include "toeplab-lab.h"

typedef struct refusal { /* tables are ended by {0} */
    gradient_case c;
    tl_status     status;
    const char   *text; /* part of the message */
} refusal;

#define OF(...) .in = {__VA_ARGS__}
/* of an mlp: hidden by k, and o by hidden */
#define MAPS(hidden, k, o) \
    {ANY, 2, {hidden, k}}, {ANY, 1, {hidden}}, {ANY, 2, {o, hidden}}, {ANY, 1, {o}}

static const refusal refusals[] = {
    {{"unary of ids", unary, 1, OF({INTEGERS, 1, {3}})}, TL_ETYPE, "int32"},
    {{"no such function", unary, 1, OF({ANY, 1, {3}}), .i = {TL_UNARY_KINDS}}, TL_EINVAL, "23"},
    {{"add", binary, 2, OF({ANY, 2, {2, 3}}, {ANY, 2, {2, 4}})}, TL_ESHAPE, "[2,3], b is [2,4]"},
    {{"add ids", binary, 2, OF({ANY, 1, {3}}, {INTEGERS, 1, {3}})}, TL_ETYPE, "float32"},
    {{"gate", gate, 2, OF({ANY, 2, {2, 3}}, {ANY, 1, {3}})}, TL_ESHAPE, "[2,3], b is [3]"},
    {{"matmul", matmul, 2, OF({ANY, 2, {4, 3}}, {ANY, 2, {2, 5}})}, TL_ESHAPE, "[4,3]"},
    {{"matmul batch", matmul, 2, OF({ANY, 3, {2, 4, 3}}, {ANY, 3, {3, 3, 5}})}, TL_ESHAPE,
     "[3,3,5]"},
    {{"matmul of a vector", matmul, 2, OF({ANY, 1, {4}}, {ANY, 2, {4, 5}})}, TL_ESHAPE, "[4]"},
    {{"matmul of more than an int counts", matmul, 2,
      OF({ANY, 2, {0, 1LL << 31}}, {ANY, 2, {1LL << 31, 0}})}, TL_ESHAPE, "2147483648"},
    {{"linear of more than an int counts", linear, 2,
      OF({ANY, 2, {1LL << 31, 0}}, {ANY, 2, {5, 0}})}, TL_ESHAPE, "2147483648"},
    {{"linear", linear, 2, OF({ANY, 2, {4, 3}}, {ANY, 2, {5, 4}})}, TL_ESHAPE, "[5,4]"},
    {{"linear bias", linear, 3, OF({ANY, 2, {4, 3}}, {ANY, 2, {5, 3}}, {ANY, 1, {4}})}, TL_ESHAPE,
     "[4]"},
    {{"sum axis", reduce, 1, OF({ANY, 2, {2, 3}}), .i = {TL_REDUCE_SUM, 2}}, TL_EINVAL, "[2,3]"},
    {{"sum axis of more than an int", reduce, 1, OF({ANY, 2, {2, 3}}),
      .i = {TL_REDUCE_SUM, INT_MAX}},
     TL_EINVAL, "no axis 2147483647"},
    {{"rfft axis of more than an int", rfft, 1, OF({ANY, 2, {2, 3}}), .i = {INT_MAX}}, TL_EINVAL,
     "no axis 2147483647"},
    {{"irfft of a number", irfft, 1, OF({ANY, 0, {0}}), .i = {INT_MIN, 1}}, TL_ESHAPE, "[..,2]"},
    {{"sum of ids", reduce, 1, OF({INTEGERS, 2, {2, 3}}), .i = {TL_REDUCE_SUM, 0}}, TL_ETYPE,
     "int32"},
    {{"cumsum axis", cumsum, 1, OF({ANY, 2, {2, 3}}), .i = {-3}}, TL_EINVAL, "[2,3]"},
    {{"reshape", reshape, 1, OF({ANY, 2, {2, 3}}), .i = {4, 2}}, TL_ESHAPE, "[2,3]"},
    {{"reshape twice -1", reshape, 1, OF({ANY, 2, {2, 3}}), .i = {-1, -1}}, TL_ESHAPE, "-1"},
    {{"transpose", transpose, 1, OF({ANY, 2, {2, 3}}), .i = {0, 0}}, TL_EINVAL, "[2,3]"},
    {{"slice", slice, 1, OF({ANY, 2, {2, 3}}), .i = {1, 2, 2}}, TL_ESHAPE, "[2,3]"},
    {{"concat", concat, 2, OF({ANY, 2, {2, 3}}, {ANY, 2, {2, 4}})}, TL_ESHAPE, "[2,4]"},
    {{"softmax of ids", softmax, 1, OF({INTEGERS, 1, {3}})}, TL_ETYPE, "int32"},
    {{"causal softmax", softmax, 1, OF({ANY, 2, {2, 3}}), .i = {1}}, TL_ESHAPE, "[2,3]"},
    {{"linear cross entropy", cross_entropy, 2, OF({ANY, 2, {2, 3}}, {ANY, 2, {5, 4}})}, TL_ESHAPE,
     "[5,4]"},
    {{"linear cross entropy bias", cross_entropy, 3,
      OF({ANY, 2, {2, 3}}, {ANY, 2, {5, 3}}, {ANY, 1, {3}})}, TL_ESHAPE, "bias is [3]"},
    {{"layer_norm", layer_norm, 2, OF({ANY, 2, {2, 3}}, {ANY, 1, {2}})}, TL_ESHAPE,
     "weight is [2]"},
    {{"layer_norm bias", layer_norm, 3, OF({ANY, 2, {2, 3}}, {ANY, 1, {3}}, {ANY, 2, {3, 1}})},
     TL_ESHAPE, "bias is [3,1]"},
    {{"layer_norm eps", layer_norm, 1, OF({ANY, 2, {2, 3}}), .f = {-1}}, TL_EINVAL, "-1"},
    {{"rms_norm of a number", rms_norm, 1, OF({ANY, 0, {0}})}, TL_ESHAPE, "[]"},
    {{"rms_norm of no channel", rms_norm, 1, OF({ANY, 2, {2, 0}})}, TL_ESHAPE, "[2,0]"},
    {{"simple_rms_norm of ids", simple_rms_norm, 1, OF({INTEGERS, 1, {3}})}, TL_ETYPE, "int32"},
    {{"scale_norm", scale_norm, 2, OF({ANY, 2, {2, 3}}, {ANY, 1, {3}})}, TL_ESHAPE,
     "weight is [3]"},
    {{"batch_norm", batch_norm, 2, OF({ANY, 2, {2, 3}}, {ANY, 1, {2}})}, TL_ESHAPE,
     "weight is [2]"},
    {{"batch_norm of one row", batch_norm, 1, OF({ANY, 2, {1, 3}}), .i = {1}}, TL_EINVAL, "[1,3]"},
    {{"mlp of one layer", mlp, 3, OF({ANY, 2, {4, 3}}, {ANY, 2, {5, 3}}, {ANY, 1, {5}}),
      .i = {0, 0, 0, 1}}, TL_EINVAL, "1 layers"},
    {{"mlp of ids", mlp, 5, OF({INTEGERS, 2, {4, 3}}, MAPS(5, 3, 2)), .i = {0, 0, 0, 2}}, TL_ETYPE,
     "int32"},
    {{"mlp of a vector", mlp, 5, OF({ANY, 1, {3}}, MAPS(5, 3, 2)), .i = {0, 0, 0, 2}}, TL_ESHAPE,
     "[3]"},
    {{"mlp of other numbers", mlp, 5, OF({ANY, 2, {4, 4}}, MAPS(5, 3, 2)), .i = {0, 0, 0, 2}},
     TL_ESHAPE, "[5,3], not [outputs,4]"},
    {{"mlp norm", mlp, 5, OF({ANY, 2, {4, 3}}, MAPS(5, 3, 2)), .i = {4, 0, 0, 2}}, TL_EINVAL,
     "norm 4"},
    {{"mlp eps", mlp, 5, OF({ANY, 2, {4, 3}}, MAPS(5, 3, 2)), .i = {1, 0, 0, 2}, .f = {-1}},
     TL_EINVAL, "-1"},
    {{"mlp function", mlp, 5, OF({ANY, 2, {4, 3}}, MAPS(5, 3, 2)),
      .i = {0, TL_UNARY_KINDS, 0, 2}}, TL_EINVAL, "23"},
    {{"mlp norm's weight", mlp, 6, OF({ANY, 2, {4, 3}}, MAPS(5, 3, 2), {ANY, 1, {3}}),
      .i = {1, 0, 0, 2}}, TL_ESHAPE, "norm_weight of layer 2 is [3]"},
    {{"mlp that adds others", mlp, 7, OF({ANY, 2, {4, 3}}, MAPS(5, 3, 6), {ANY, 2, {2, 6}},
      {ANY, 1, {2}}), .i = {1, 0, 1, 3}}, TL_ESHAPE, "6 outputs and 5 inputs"},
    {{"mlp whose scale wants a gradient", mlp, 5, OF({ANY, 2, {4, 3}}, MAPS(5, 3, 2)),
      .i = {1, 0, 0, 2}, .f = {1e-5, -1}}, TL_EINVAL, "scale [4] requires a gradient"},
    {{"conv", conv, 2, OF({ANY, 3, {2, 3, 4}}, {ANY, 2, {2, 3}})}, TL_ESHAPE, "taps are [2,3]"},
    {{"conv of a matrix", conv, 2, OF({ANY, 2, {3, 4}}, {ANY, 2, {2, 4}})}, TL_ESHAPE, "[3,4]"},
    {{"conv origin", conv, 2, OF({ANY, 3, {2, 3, 4}}, {ANY, 2, {2, 4}}), .i = {2}}, TL_EINVAL, "2"},
    {{"scan's delta", selective, 5, OF({ANY, 3, {2, 3, 4}}, {ANY, 3, {2, 3, 5}}, {ANY, 2, {4, 2}},
      {ANY, 3, {2, 3, 2}}, {ANY, 3, {2, 3, 2}})}, TL_ESHAPE, "delta is [2,3,5]"},
    {{"scan's a", selective, 5, OF({ANY, 3, {2, 3, 4}}, {ANY, 3, {2, 3, 4}}, {ANY, 2, {3, 2}},
      {ANY, 3, {2, 3, 2}}, {ANY, 3, {2, 3, 2}})}, TL_ESHAPE, "a is [3,2]"},
    {{"scan's c", selective, 5, OF({ANY, 3, {2, 3, 4}}, {ANY, 3, {2, 3, 4}}, {ANY, 2, {4, 2}},
      {ANY, 3, {2, 3, 2}}, {ANY, 3, {2, 3, 3}})}, TL_ESHAPE, "c is [2,3,3]"},
    {{"scan's skip", selective, 6, OF({ANY, 3, {2, 3, 4}}, {ANY, 3, {2, 3, 4}}, {ANY, 2, {4, 2}},
      {ANY, 3, {2, 3, 2}}, {ANY, 3, {2, 3, 2}}, {ANY, 1, {3}})}, TL_ESHAPE, "skip is [3]"},
    {{"recurrence's k", linear_recurrence, 4, OF({ANY, 4, {2, 3, 1, 4}}, {ANY, 4, {2, 3, 1, 5}},
      {ANY, 4, {2, 3, 1, 6}}, {ANY, 4, {2, 3, 1, 4}})}, TL_ESHAPE, "k is [2,3,1,5]"},
    {{"recurrence's v", linear_recurrence, 4, OF({ANY, 4, {2, 3, 1, 4}}, {ANY, 4, {2, 3, 1, 4}},
      {ANY, 4, {2, 3, 2, 6}}, {ANY, 4, {2, 3, 1, 4}})}, TL_ESHAPE, "v is [2,3,2,6]"},
    {{"recurrence's g", linear_recurrence, 4, OF({ANY, 4, {2, 3, 1, 4}}, {ANY, 4, {2, 3, 1, 4}},
      {ANY, 4, {2, 3, 1, 6}}, {ANY, 4, {2, 3, 1, 2}})}, TL_ESHAPE, "g is [2,3,1,2]"},
    {{"cauchy's v", cauchy_of, 3, OF({ANY, 4, {2, 3, 4, 1}}, {ANY, 3, {3, 4, 2}},
      {ANY, 2, {5, 2}})}, TL_ESHAPE, "v is [2,3,4,1], not [r,d,m,2]"},
    {{"cauchy's poles", cauchy_of, 3, OF({ANY, 4, {2, 3, 4, 2}}, {ANY, 3, {4, 3, 2}},
      {ANY, 2, {5, 2}})}, TL_ESHAPE, "v is [2,3,4,2], poles is [4,3,2], not [3,4,2]"},
    {{"cauchy's nodes", cauchy_of, 3, OF({ANY, 4, {2, 3, 4, 2}}, {ANY, 3, {3, 4, 2}},
      {ANY, 1, {5}})}, TL_ESHAPE, "nodes is [5], not [f,2]"},
    {{"cauchy of ids", cauchy_of, 3, OF({ANY, 4, {2, 3, 4, 2}}, {INTEGERS, 3, {3, 4, 2}},
      {ANY, 2, {5, 2}})}, TL_ETYPE, "poles is int32"},
    {{"cauchy whose nodes want a gradient", cauchy_of, 3, OF({ANY, 4, {2, 3, 4, 2}},
      {ANY, 3, {3, 4, 2}}, {ANY, 2, {5, 2}})}, TL_EINVAL, "nodes [5,2] requires a gradient"},
    {{"attention's k", attention, 3, OF({ANY, 3, {2, 3, 4}}, {ANY, 3, {2, 3, 5}},
      {ANY, 3, {2, 3, 4}})}, TL_ESHAPE, "k is [2,3,5]"},
    {{"attention's v", attention, 3, OF({ANY, 3, {2, 3, 4}}, {ANY, 3, {2, 6, 4}},
      {ANY, 3, {2, 5, 4}})}, TL_ESHAPE, "v is [2,5,4]"},
    {{"attention's bias", attention, 4, OF({ANY, 3, {2, 3, 4}}, {ANY, 3, {2, 3, 4}},
      {ANY, 3, {2, 3, 4}}, {ANY, 2, {2, 6}})}, TL_ESHAPE, "the bias is [2,6]"},
    {{"attention's heads", attention, 4, OF({ANY, 3, {2, 3, 4}}, {ANY, 3, {2, 3, 4}},
      {ANY, 3, {2, 3, 4}}, {ANY, 2, {3, 5}})}, TL_ESHAPE, "the bias is [3,5]"},
    {{"attention's window", attention, 3, OF({ANY, 2, {3, 4}}, {ANY, 2, {3, 4}},
      {ANY, 2, {3, 4}}), .i = {0, -1}}, TL_EINVAL, "window is -1, not 0 or more"},
    {{"dropout of ids", dropout, 1, OF({INTEGERS, 1, {3}})}, TL_ETYPE, "float32"},
    {{"dropout", dropout, 1, OF({ANY, 1, {3}}), .f = {1}}, TL_EINVAL, "1"},
    {{"decay", decay, 2, OF({ANY, 2, {4, 3}}, {FRACTION, 1, {2}})}, TL_ESHAPE, "[2]"},
    {{"fft of real", fft, 1, OF({ANY, 2, {4, 3}})}, TL_ESHAPE, "[4,3]"},
    {{"fft axis", fft, 1, OF({ANY, 2, {4, 2}}), .i = {1, 0}}, TL_EINVAL, "[4,2]"},
    {{"irfft length", irfft, 1, OF({ANY, 2, {4, 2}}), .i = {0, 9}}, TL_ESHAPE, "9"},
    {{0}, TL_OK, NULL},
};

/* Fails as it should, leaves out_y alone, records nothing and loses no memory. */
static void refuses(void)
{
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    for (const refusal *r = refusals; r->c.name; r++) {
        tl_stream  s = tl_stream_new(1, r->c.name);
        tl_tensor *in[TL_ARGS] = {NULL}, *y = NULL;
        for (int k = 0; k < r->c.inputs; k++) {
            CHECK_STATUS(make_operand(ctx, r->c.in + k, &s, in + k), TL_OK);
            if (tl_tensor_type(in[k]) == TL_F32)
                CHECK_STATUS(tl_set_requires_grad(in[k], 1), TL_OK);
        }
        tl_status st = r->c.run(&r->c, in, &y);
        int       told = st != TL_OK && strstr(tl_errmsg(ctx), r->text) != NULL;
        if (st != r->status || !told)
            printf("%s: %s, \"%s\"\n", r->c.name, tl_status_name(st), tl_errmsg(ctx));
        CHECK_STATUS(st, r->status);
        CHECK(told && y == NULL && tl_tape_len(ctx) == 0);
        free_all(in, r->c.inputs);
        CHECK(tl_memory_info(ctx).tensors == 0);
    }
    tl_ctx_free(ctx);
}

/* Messages name an axis as the caller gave it: from 0 in C, and from 1 for a caller who says so. */
static void axes_are_named_as_given(void)
{
    tl_ctx       *ctx = NULL;
    const int64_t dims[3] = {2, 3, 4}, negative[3] = {2, -3, 4};
    tl_tensor    *x = NULL, *y = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 3, dims, &x), TL_OK);
    for (int first = 0; first < 2; first++) {
        char fifth[32], last[32], middle[40], open[40];
        tl_set_first_axis(ctx, first);
        (void)snprintf(fifth, sizeof fifth, "no axis %d", 5 + first);
        (void)snprintf(last, sizeof last, "slice: axis %d of", 2 + first);
        (void)snprintf(middle, sizeof middle, "dimension %d is negative", 1 + first);
        (void)snprintf(open, sizeof open, "dimension %d of [2,3,4]", 1 + first);
        CHECK_STATUS(tl_cumsum(x, 5, &y), TL_EINVAL);
        CHECK(strstr(tl_errmsg(ctx), fifth) != NULL);
        CHECK_STATUS(tl_cumsum(x, -5, &y), TL_EINVAL);
        CHECK(strstr(tl_errmsg(ctx), "no axis -5") != NULL);
        CHECK_STATUS(tl_rfft(x, 5, &y), TL_EINVAL);
        CHECK(strstr(tl_errmsg(ctx), fifth) != NULL);
        CHECK_STATUS(tl_slice(x, 2, 3, 2, &y), TL_ESHAPE);
        CHECK(strstr(tl_errmsg(ctx), last) != NULL);
        CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 3, negative, &y), TL_ESHAPE);
        CHECK(strstr(tl_errmsg(ctx), middle) != NULL);
        CHECK_STATUS(tl_reshape(x, 3, negative, &y), TL_ESHAPE);
        CHECK(strstr(tl_errmsg(ctx), open) != NULL);
    }
    tl_tensor_free(x);
    tl_ctx_free(ctx);
}

/* So do messages count positions. */
static void positions_are_counted_as_given(void)
{
    tl_ctx       *ctx = NULL;
    const int64_t two = 2, dims[2] = {2, 2};
    tl_tensor    *x = NULL, *t = NULL, *ids = NULL, *y = NULL;
    tl_recurrence *r = NULL;
    tl_stream     s = tl_stream_new(1, "test");
    double        bits;
    int           value;
    int32_t       id;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 2, dims, &t), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 1, &two, &x), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, TL_I32, 1, &two, &ids), TL_OK);
    tl_tensor_f32(x)[0] = 1;
    tl_tensor_i32(ids)[0] = 13; /* [MIN, then no token */
    for (int first = 0; first < 2; first++) {
        char text[4][40];
        tl_set_first_axis(ctx, first);
        (void)snprintf(text[0], sizeof text[0], "gamma %d is 2, outside", 1 + first);
        (void)snprintf(text[1], sizeof text[1], "logit %d is NaN", 1 + first);
        (void)snprintf(text[2], sizeof text[2], "train[%d] is 13", first);
        (void)snprintf(text[3], sizeof text[3], "token %d is 0, not in", 1 + first);
        tl_tensor_f32(x)[1] = 2;
        CHECK_STATUS(tl_decay(t, x, x, &y), TL_EINVAL);
        CHECK(strstr(tl_errmsg(ctx), text[0]) != NULL);
        CHECK_STATUS(tl_recurrence_new(t, x, TL_RECURRENCE_RING, 1, &r), TL_EINVAL);
        CHECK(strstr(tl_errmsg(ctx), text[0]) != NULL);
        tl_tensor_f32(x)[1] = NAN;
        CHECK_STATUS(tl_sample(x, 1, 0, &s, &id), TL_EINVAL);
        CHECK(strstr(tl_errmsg(ctx), text[1]) != NULL);
        CHECK_STATUS(tl_ngram_bits(ids, ids, 1, 13, TL_WITTEN_BELL, &bits), TL_EINVAL);
        CHECK(strstr(tl_errmsg(ctx), text[2]) != NULL);
        CHECK_STATUS(tl_listops_value(ids, 0, 2, &value), TL_EINVAL);
        CHECK(strstr(tl_errmsg(ctx), text[3]) != NULL);
    }
    CHECK(y == NULL && r == NULL);
    tl_tensor *all[] = {x, t, ids};
    for (int i = 0; i < 3; i++) tl_tensor_free(all[i]);
    tl_ctx_free(ctx);
}

/* Targets and indices out of range are named. */
static void indices_out_of_range(void)
{
    tl_ctx       *ctx = NULL;
    const int64_t three = 3, dims[2] = {3, 4};
    tl_tensor    *x = NULL, *ids = NULL, *y = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 2, dims, &x), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, TL_I32, 1, &three, &ids), TL_OK);
    tl_tensor_i32(ids)[1] = 4;
    CHECK_STATUS(tl_cross_entropy(x, ids, -100, &y), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "target 4 in row 1 is not in 0..3") != NULL);
    CHECK_STATUS(tl_gather(x, ids, &y), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "index 4 at position 1 is") != NULL);
    tl_tensor_i32(ids)[1] = -1;
    CHECK_STATUS(tl_cross_entropy(x, ids, -100, &y), TL_EINVAL);
    CHECK_STATUS(tl_gather(x, ids, &y), TL_EINVAL);
    CHECK_STATUS(tl_cross_entropy(ids, x, -100, &y), TL_ETYPE);
    CHECK_STATUS(tl_cross_entropy(x, x, -100, &y), TL_ETYPE);
    CHECK_STATUS(tl_gather(x, x, &y), TL_ETYPE);
    CHECK_STATUS(tl_random_uniform(ids, &(tl_stream){0}, 0, 1), TL_ETYPE);
    CHECK_STATUS(tl_random_permutation(x, &(tl_stream){0}), TL_ETYPE);
    CHECK(y == NULL);
    tl_tensor_free(x);
    tl_tensor_free(ids);
    tl_ctx_free(ctx);
}

/* Operators multiply sizes of other axes, which an empty one does not make small. */
static void empty_tensors_of_too_much(void)
{
    tl_ctx       *ctx = NULL;
    tl_tensor    *t = NULL;
    const int64_t cases[][3] = {{0, 1LL << 40, 1LL << 40}, {1LL << 40, 0, 1LL << 40},
                                {0, 1, INT64_MAX}};
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    for (int i = 0; i < 3; i++)
        CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 3, cases[i], &t), TL_ESHAPE);
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 3, (int64_t[]){1, 1LL << 40, 1LL << 40}, &t),
                 TL_ENOMEM);
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 3, (int64_t[]){0, 1LL << 20, 1LL << 30}, &t), TL_OK);
    tl_tensor_free(t);
    tl_ctx_free(ctx);
}

static void types_that_there_are_none_of(void)
{
    tl_ctx    *ctx = NULL;
    tl_tensor *t = NULL;
    int64_t    n = 1;
    float      one = 1;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, (tl_type)9, 1, &n, &t), TL_ETYPE);
    CHECK(strstr(tl_errmsg(ctx), "no element type 9") != NULL);
    CHECK_STATUS(tl_tensor_borrow(ctx, (tl_type)2, 1, &n, &one, &t), TL_ETYPE);
    tl_ctx_free(ctx);
}

/* The message came from an older failure. */
static void concat_of_none(void)
{
    tl_ctx    *ctx = NULL;
    tl_tensor *t = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    (void)tl_fail(ctx, TL_ETYPE, "an older failure");
    CHECK_STATUS(tl_concat(ctx, NULL, 0, 0, &t), TL_EINVAL);
    CHECK(strcmp(tl_errmsg(ctx), "concat: 0 tensors, it needs at least 1") == 0);
    tl_ctx_free(ctx);
}

/* A value that int32 has not was undefined behaviour. */
static void ids_are_filled_with_integers_only(void)
{
    static const double wrong[] = {NAN, INFINITY, -INFINITY, 2147483648.0, -2147483649.0};
    tl_ctx       *ctx = NULL;
    const int64_t three = 3;
    tl_tensor    *ids = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, TL_I32, 1, &three, &ids), TL_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_STATUS(tl_tensor_fill(ids, wrong[i]), TL_EINVAL);
    CHECK(tl_tensor_ci32(ids)[2] == 0);
    CHECK_STATUS(tl_tensor_fill(ids, -2147483648.0), TL_OK);
    CHECK(tl_tensor_ci32(ids)[2] == INT32_MIN);
    tl_tensor_free(ids);
    tl_ctx_free(ctx);
}

static const gradient_case empties[] = {
    {"unary", unary, 1, OF({ANY, 2, {0, 3}})},
    {"binary", binary, 2, OF({ANY, 2, {0, 3}}, {ANY, 1, {3}})},
    {"binary empty suffix", binary, 2, OF({ANY, 2, {2, 0}}, {ANY, 1, {0}})},
    {"binary of a number", binary, 2, OF({ANY, 0, {0}}, {ANY, 1, {0}})},
    {"affine", affine, 1, OF({ANY, 1, {0}}), .f = {2, 1}},
    {"gate", gate, 2, OF({ANY, 2, {3, 0}}, {ANY, 2, {3, 0}})},
    {"matmul rows", matmul, 2, OF({ANY, 2, {0, 3}}, {ANY, 2, {3, 4}})},
    {"matmul inner", matmul, 2, OF({ANY, 2, {2, 0}}, {ANY, 2, {0, 4}})},
    {"matmul batch", matmul, 2, OF({ANY, 3, {0, 2, 3}}, {ANY, 3, {0, 3, 4}})},
    {"linear", linear, 3, OF({ANY, 2, {0, 3}}, {ANY, 2, {4, 3}}, {ANY, 1, {4}})},
    {"sum", reduce, 1, OF({ANY, 2, {0, 3}}), .i = {TL_REDUCE_SUM, TL_ALL_AXES}},
    {"sum of empty rows", reduce, 1, OF({ANY, 2, {3, 0}}), .i = {TL_REDUCE_SUM, 1}},
    {"cumsum", cumsum, 1, OF({ANY, 2, {3, 0}}), .i = {1}},
    {"transpose", transpose, 1, OF({ANY, 2, {3, 0}}), .i = {1, 0}},
    {"slice", slice, 1, OF({ANY, 2, {3, 2}}), .i = {0, 1, 0}},
    {"concat", concat, 2, OF({ANY, 2, {0, 2}}, {ANY, 2, {3, 2}})},
    {"softmax", softmax, 1, OF({ANY, 2, {0, 3}})},
    {"softmax of empty rows", softmax, 1, OF({ANY, 2, {3, 0}})},
    {"log_softmax", log_softmax, 1, OF({ANY, 2, {3, 0}})},
    {"cross_entropy", cross_entropy, 1, OF({ANY, 2, {0, 3}})},
    {"linear_cross_entropy", cross_entropy, 2, OF({ANY, 2, {0, 3}}, {ANY, 2, {4, 3}})},
    {"layer_norm", layer_norm, 3, OF({ANY, 2, {0, 3}}, {ANY, 1, {3}}, {ANY, 1, {3}})},
    {"simple_rms_norm", simple_rms_norm, 1, OF({ANY, 2, {0, 3}})},
    {"batch_norm", batch_norm, 3, OF({ANY, 2, {0, 3}}, {ANY, 1, {3}}, {ANY, 1, {3}})},
    {"mlp", mlp, 5, OF({ANY, 2, {0, 3}}, MAPS(5, 3, 2)), .i = {TL_NORM_SIMPLE, 0, 0, 2}},
    {"conv", conv, 2, OF({ANY, 3, {2, 0, 3}}, {ANY, 2, {4, 3}})},
    {"selective scan", selective, 6, OF({ANY, 3, {2, 0, 3}}, {ANY, 3, {2, 0, 3}}, {ANY, 2, {3, 2}},
      {ANY, 3, {2, 0, 2}}, {ANY, 3, {2, 0, 2}}, {ANY, 1, {3}})},
    {"linear recurrence", linear_recurrence, 4, OF({ANY, 4, {2, 0, 1, 3}}, {ANY, 4, {2, 0, 1, 3}},
      {ANY, 4, {2, 0, 1, 2}}, {ANY, 4, {2, 0, 1, 3}})},
    {"cauchy", cauchy, 2, OF({ANY, 4, {2, 3, 0, 2}}, {NEGATIVE, 3, {3, 0, 2}}), .i = {4, 1}},
    {"cauchy without nodes", cauchy, 2, OF({ANY, 4, {2, 3, 4, 2}}, {NEGATIVE, 3, {3, 4, 2}}),
     .i = {0, 1}},
    {"attention of no queries", attention, 4, OF({ANY, 3, {2, 0, 3}}, {ANY, 3, {2, 4, 3}},
      {ANY, 3, {2, 4, 3}}, {ANY, 2, {2, 3}})},
    {"attention to no keys", attention, 3, OF({ANY, 3, {2, 4, 3}}, {ANY, 3, {2, 0, 3}},
      {ANY, 3, {2, 0, 3}})},
    {"attention without channels", attention, 3, OF({ANY, 3, {2, 4, 0}}, {ANY, 3, {2, 3, 0}},
      {ANY, 3, {2, 3, 2}})},
    {"dropout", dropout, 1, OF({ANY, 1, {0}}), .f = {0.5}},
    {"decay", decay, 2, OF({ANY, 2, {0, 3}}, {FRACTION, 1, {3}})},
    {0},
};

/* Gradients of operators on nothing are 0, of the right shape. */
static void empty_tensors(void)
{
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    for (const gradient_case *c = empties; c->name; c++) {
        double error = gradient_error(ctx, c);
        if (error > 0.01) printf("%s: %g\n", c->name, error);
        CHECK(error <= 0.01);
    }
    CHECK(tl_memory_info(ctx).tensors == 0);
    tl_ctx_free(ctx);
}

int main(void)
{
    return run_tests((const test[]){{"wrong shapes and types", refuses},
                                    {"axes are named as given", axes_are_named_as_given},
                                    {"positions are counted as given",
                                     positions_are_counted_as_given},
                                    {"indices out of range", indices_out_of_range},
                                    {"empty tensors of too much", empty_tensors_of_too_much},
                                    {"no such types", types_that_there_are_none_of},
                                    {"concat of none", concat_of_none},
                                    {"ids are filled with integers only",
                                     ids_are_filled_with_integers_only},
                                    {"empty tensors", empty_tensors},
                                    {0}});
}
