/* fft.cu - computes the backends fft and rac on a GPU, where both are the same convolution by
** cuFFT. */
#include "../common/apply.cuh"

static tl_status fft_gpu_forward(void *plan, const tl_tno_args *a)
{
    return gpu_convolve((const gpu_convolution *)plan, a);
}

static tl_status fft_gpu_backward(void *plan, const tl_tno_args *a)
{
    return gpu_convolve_back((const gpu_convolution *)plan, a);
}

static int64_t fft_gpu_cache_size(void *plan)
{
    return gpu_convolution_cache_size((const gpu_convolution *)plan);
}

/* The points are all lags, or the nearest ones if an option limits them. */
static tl_status fft_gpu_make(const tl_host *h, const char *name, const tl_tno_problem *p,
                              void **out_plan)
{
    int64_t   lags;
    tl_status st = gpu_points(h, name, p, &lags);
    if (st != TL_OK) return st;
    gpu_convolution *s = (gpu_convolution *)gpu_plan(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    gpu_convolution_set(s, gpu_ctx(h), p->n, p->d, p->causal ? 0 : (lags - 1) / 2, lags);
    *out_plan = s;
    return TL_OK;
}

static tl_status make_fft(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    return fft_gpu_make(h, "fft", p, out_plan);
}

static tl_status make_rac(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    return fft_gpu_make(h, "rac", p, out_plan);
}

const gpu_form gpu_fft_form = {"fft", {make_fft, fft_gpu_forward, fft_gpu_backward,
                                       gpu_plan_free, fft_gpu_cache_size}};
const gpu_form gpu_rac_form = {"rac", {make_rac, fft_gpu_forward, fft_gpu_backward,
                                       gpu_plan_free, fft_gpu_cache_size}};
