/* fft.cu - computes the backend fft on a GPU, by cuFFT. */
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

static tl_status fft_gpu_make(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    int64_t   lags;
    tl_status st = gpu_points(h, "fft", p, &lags);
    if (st != TL_OK) return st;
    gpu_convolution *s = (gpu_convolution *)gpu_plan(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    gpu_convolution_set(s, gpu_ctx(h), p->n, p->d, p->causal ? 0 : (lags - 1) / 2, lags);
    *out_plan = s;
    return TL_OK;
}

const gpu_form gpu_fft_form = {"fft", {fft_gpu_make, fft_gpu_forward, fft_gpu_backward,
                                       gpu_plan_free, fft_gpu_cache_size}};
