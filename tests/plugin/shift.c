/* shift.c - a whole backend, to be copied: y_i = coef_0 x_i + coef_1 x_(i-1) in each channel.
**   cc -shared -fPIC -I TOEPLAB/core shift.c -o FOLDER/shift.so
**   TOEPLAB_BACKENDS=FOLDER toeplab doctor --backends */
#include <stdio.h>
#include <stdlib.h>
#include "backend.h"
static int accepts(const tl_tno_problem *p, char *why, size_t size)
{
    if (p->causal) return 1;
    return (void)snprintf(why, size, "it looks back only"), 0;
}
static int64_t points(const tl_tno_problem *p, double *out) /* to ask the encoder: lags 0, 1 */
{
    for (int k = 0; out && k < 2; k++) out[k] = k;
    return p->n > 0 ? 2 : 0;
}
static tl_status make(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    tl_tno_problem *s = malloc(sizeof *s); /* the plan: all that the two below need to know */
    if (!s) return h->fail(h, TL_ENOMEM, "shift: out of memory");
    *s = *p, *out_plan = s;
    return TL_OK;
}
static tl_status forward(void *plan, const tl_tno_args *a) /* x, y [b,n,d]   coef [2,d] */
{
    int64_t n = ((tl_tno_problem *)plan)->n, d = ((tl_tno_problem *)plan)->d;
    for (int64_t k = 0; k < a->b * n * d; k++)
        a->y[k] = a->coef[k % d] * a->x[k] + (k / d % n ? a->coef[d + k % d] * a->x[k - d] : 0);
    return TL_OK;
}
static tl_status backward(void *plan, const tl_tno_args *a) /* the adjoints; NULL: not wanted */
{
    int64_t n = ((tl_tno_problem *)plan)->n, d = ((tl_tno_problem *)plan)->d;
    for (int64_t k = 0; a->dcoef && k < 2 * d; k++) a->dcoef[k] = 0;
    for (int64_t k = 0; k < a->b * n * d; k++) {
        float later = k / d % n + 1 < n ? a->dy[k + d] : 0;
        if (a->dx) a->dx[k] = a->coef[k % d] * a->dy[k] + a->coef[d + k % d] * later;
        if (a->dcoef) a->dcoef[k % d] += a->dy[k] * a->x[k], a->dcoef[d + k % d] += later * a->x[k];
    }
    return TL_OK;
}
const tl_tno_backend tl_tno_backend_entry = { /* all else is optional: backend.h */
    .abi = TL_TNO_ABI, .name = "shift", .summary = "the token and the one before", .domain = "lag",
    .accepts = accepts, .points = points, .plan = make, .forward = forward, .backward = backward,
    .release = free};
