/* fft.cu - the backends fft and rac on a GPU: on a processor they are two ways to do what is
** one here. */
#include "../common/apply.cuh"

static tl_status forward(void *plan, const tl_tno_args *a)
{
    return card_convolve((const card_convolution *)plan, a);
}

static tl_status backward(void *plan, const tl_tno_args *a)
{
    return card_convolve_back((const card_convolution *)plan, a);
}

static int64_t kept(void *plan)
{
    return card_convolution_kept((const card_convolution *)plan);
}

/* The points are all lags, or those nearer than an option says. */
static tl_status make(const tl_host *h, const char *name, const tl_tno_problem *p, void **out_plan)
{
    int64_t   lags;
    tl_status st = card_points(h, name, p, &lags);
    if (st != TL_OK) return st;
    card_convolution *s = (card_convolution *)card_plan(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    card_convolution_set(s, card_ctx(h), p->n, p->d, p->causal ? 0 : (lags - 1) / 2, lags);
    *out_plan = s;
    return TL_OK;
}

static tl_status make_fft(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    return make(h, "fft", p, out_plan);
}

static tl_status make_rac(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    return make(h, "rac", p, out_plan);
}

const card_form card_fft_form = {"fft", {make_fft, forward, backward, card_plan_free, kept}};
const card_form card_rac_form = {"rac", {make_rac, forward, backward, card_plan_free, kept}};
