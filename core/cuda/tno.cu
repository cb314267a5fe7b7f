/* tno.cu - the operator tno on a card, and the list of backends that have a form there. */
#include <stdlib.h>
#include <string.h>

#include "tno.cuh"

extern "C" {
#include "tno.h"
}

/* ---- Backends -------------------------------------------------------------------------------- */

static const card_form *const forms[] = {&card_fft_form};

void *card_plan(const tl_host *h, size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p) (void)tl_fail(card_ctx(h), TL_ENOMEM, "out of memory");
    return p;
}

void card_plan_free(void *plan) { free(plan); }

const tl_tno_form *card_backend(tl_ctx *ctx, const char *name)
{
    (void)ctx;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(forms[i]->name, name) == 0) return &forms[i]->form;
    return NULL;
}

/* ---- The operator: tno.c's, which only hands pointers on ------------------------------------- */

const tl_kernel_row card_tno[] = {{TL_OP_tno, tl_tno_kernel},
                                  {TL_OP_tno_grad, tl_tno_grad_kernel},
                                  {}};
