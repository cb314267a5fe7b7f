/* generate.c - continues a text by a trained model, in C.
**     toeplab run quickstart.lua && toeplab generate @last --convert model.h5
**     cc generate.c $(pkg-config --cflags --libs toeplab-lab) -lm -o generate
**     ./generate model.h5 "In the beginning" 200
** prints what toeplab generate model.h5 -p "In the beginning" -n 200 prints. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <toeplab-lab.h>

#define LAYERS 100

static tl_ctx        *ctx;
static tl_h5         *file;
static tl_recurrence *tno[LAYERS]; /* each with the state of a layer */
static tl_tensor     *embed, *head;
static int            layers, normed;
static struct { char path[128]; tl_tensor *t; } known[16 * LAYERS]; /* tensors that were read */
static tl_tensor *made[20 * LAYERS]; /* results of one position, freed after it */
static int        results;
/* What block and logits compute; a model with other options would give another text. */
static const char *const asked[][2] = {{"options/structure", "gtu+glu"}, {"options/layout", "A"},
    {"options/norm", "simplermsnorm"}, {"options/final_norm", "layernorm"},
    {"options/act", "silu"}, {"options/positions", "none"}, {"options/embed_scale?", "1"},
    {"options/output_bias?", "0"}, {"vocabulary/kind", "char"}, {"recurrent/form", "exact"}};

static void check(tl_status st)
{
    if (st == TL_OK) return;
    fprintf(stderr, "generate: %s\n", ctx ? tl_errmsg(ctx) : tl_status_text(st));
    exit(1);
}
#define MAKE(call) (check(call), made[results++]) /* the last argument of call is OUT */
#define OUT        &made[results]

static tl_tensor *get(const char *format, ...) /* a tensor of the file */
{
    char    path[128];
    int     i = 0;
    va_list list;
    va_start(list, format);
    vsnprintf(path, sizeof path, format, list);
    va_end(list);
    while (known[i].t && strcmp(known[i].path, path) != 0) i++;
    if (!known[i].t) check(tl_h5_read(file, strcpy(known[i].path, path), &known[i].t));
    return known[i].t;
}

static tl_attr attribute(const char *format, int layer) /* a number or text of the file */
{
    char    path[128];
    tl_attr a;
    snprintf(path, sizeof path, format, layer);
    for (int64_t i = 0;; i++) {
        check(tl_h5_attr(file, "/", i, &a)); /* fails behind the last one */
        if (strcmp(a.name, path) == 0) return a;
    }
}

static const char *text_of(tl_attr a)
{
    static char number[24];
    snprintf(number, sizeof number, "%lld", (long long)a.i);
    return a.kind == 's' ? a.s : number;
}

static int refused(const char *why)
{
    fprintf(stderr, "generate: %s\n", why);
    return 1;
}

static tl_tensor *linear(tl_tensor *x, int l, const char *part)
{
    return MAKE(tl_linear(x, get("model/layers.%d.%s.weight", l, part),
                          get("model/layers.%d.%s.bias", l, part), OUT));
}

static tl_tensor *block(tl_tensor *x, int l) /* x [1,d] */
{
    tl_tensor *y = MAKE(tl_simple_rms_norm(x, 1e-8, OUT));
    tl_tensor *u = linear(y, l, "token.u"), *v = linear(y, l, "token.v");
    v = MAKE(tl_unary(TL_UNARY_silu, v, OUT));
    check(tl_recurrence_step(tno[l], v, v));
    v = MAKE(tl_gate(TL_UNARY_silu, u, v, OUT));
    if (normed) v = MAKE(tl_simple_rms_norm(v, 1e-8, OUT));
    v = linear(v, l, "token.o");
    x = MAKE(tl_binary(TL_BINARY_ADD, x, v, OUT));
    y = MAKE(tl_simple_rms_norm(x, 1e-8, OUT));
    u = linear(y, l, "feature.l1"), v = linear(y, l, "feature.l2");
    v = MAKE(tl_gate(TL_UNARY_silu, u, v, OUT));
    v = linear(v, l, "feature.l3");
    return MAKE(tl_binary(TL_BINARY_ADD, x, v, OUT));
}

static tl_tensor *logits(int32_t id) /* [v], of the token after id */
{
    int64_t    one = 1, v = tl_tensor_dim(embed, 0);
    tl_tensor *x = MAKE(tl_tensor_new_host(ctx, TL_I32, 1, &one, OUT));
    *tl_tensor_i32(x) = id;
    x = MAKE(tl_gather(embed, x, OUT));
    x = MAKE(tl_affine(x, sqrt((double)tl_tensor_dim(embed, 1)), 0, OUT));
    for (int l = 1; l <= layers; l++) x = block(x, l);
    x = MAKE(tl_layer_norm(x, get("model/final_norm.weight"), get("model/final_norm.bias"), 1e-5,
                           OUT));
    x = MAKE(tl_linear(x, head, NULL, OUT));
    return MAKE(tl_reshape(x, 1, &v, OUT));
}

int main(int argc, char **argv)
{
    tl_vocab  *vocab = NULL;
    tl_tensor *ids = NULL;
    tl_stream  stream = tl_stream_new(1, "generate"); /* seed 1 */
    int32_t    id = 0;
    size_t     bytes;
    char      *end = NULL;
    long       more = argc == 4 ? strtol(argv[3], &end, 10) : -1;
    if (more < 0 || *end || !*argv[2])
        return fprintf(stderr, "usage: generate MODEL.h5 PROMPT TOKENS\n"), 2;
    check(tl_ctx_new(0, &ctx));
    check(tl_h5_open(ctx, argv[1], &file));
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        if (strcmp(text_of(attribute(asked[i][0], 0)), asked[i][1]) != 0)
            return fprintf(stderr, "generate: %s is not %s\n", asked[i][0], asked[i][1]), 1;
    layers = (int)attribute("options/layers", 0).i;
    normed = strcmp(attribute("options/mixer_norm", 0).s, "none") != 0;
    if (normed && strcmp(attribute("options/mixer_norm", 0).s, "simplermsnorm") != 0)
        return refused("options/mixer_norm is neither none nor simplermsnorm");
    if (layers >= LAYERS) return refused("options/layers is 100 or more");
    embed = get("model/embed.weight");
    head = attribute("options/tied?", 0).i ? embed : get("model/head.weight");
    for (int l = 1; l <= layers; l++)
        check(tl_recurrence_from_modes(
            get("recurrent/layers/layers.%d.token.tno/b", l),
            get("recurrent/layers/layers.%d.token.tno/decay", l), TL_RECURRENCE_ETSC_EXACT,
            attribute("recurrent/layers/layers.%d.token.tno/lags", l).i,
            attribute("recurrent/layers/layers.%d.token.tno/period", l).i, 1, &tno[l]));
    tl_tensor *letters = get("vocabulary/texts/vocabulary"); /* a byte is a number */
    int64_t    count = tl_tensor_len(letters);
    char      *text = malloc((size_t)count);
    for (int64_t i = 0; text && i < count; i++) text[i] = (char)tl_tensor_ci32(letters)[i];
    check(text ? tl_vocab_new_chars(ctx, text, (size_t)count, &vocab) : TL_ENOMEM);
    check(tl_vocab_encode(vocab, argv[2], strlen(argv[2]), &ids));
    printf("%s", argv[2]);
    int64_t n = tl_tensor_len(ids), all = n + more;
    for (int64_t i = 0; i + 1 < all; i++) {
        tl_tensor *x = logits(i < n ? tl_tensor_ci32(ids)[i] : id);
        if (i + 1 >= n) { /* the prompt is read */
            check(tl_sample(x, 1.0, 0, &stream, &id));
            const char *token = tl_vocab_token(vocab, id, &bytes);
            fwrite(token, 1, bytes, stdout);
            fflush(stdout);
        }
        while (results > 0) tl_tensor_free(made[--results]);
    }
    putchar('\n');
    for (int i = 0; known[i].t; i++) tl_tensor_free(known[i].t);
    for (int l = 1; l <= layers; l++) tl_recurrence_free(tno[l]);
    tl_tensor_free(ids);
    tl_vocab_free(vocab);
    free(text);
    tl_h5_close(file);
    tl_ctx_free(ctx);
    return 0;
}
