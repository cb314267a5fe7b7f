/* tno.cuh - what the forms of backends on a card share. */
#ifndef TL_TNO_CUH
#define TL_TNO_CUH

#include "cuda.cuh"

typedef struct card_form {
    const char *name;
    tl_tno_form form;
} card_form;

extern const card_form card_fft_form;

/* Host memory of a plan, all zeros; NULL and a message if there is none. */
void *card_plan(const tl_host *h, size_t bytes);
void card_plan_free(void *plan);
static inline tl_ctx *card_ctx(const tl_host *h) { return (tl_ctx *)h->self; }

#endif
