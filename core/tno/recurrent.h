/* recurrent.h - declares the forms of a recurrence, each a table of functions. */
#ifndef TL_RECURRENT_H
#define TL_RECURRENT_H

#include "tno/lanes.h"

typedef struct tl_recurrence_form {
    const char *name; /* with its article, for messages */
    /* Makes the state of b sequences, each 0. t [lags,d] and gamma (or NULL) are on the CPU.
    ** positions: how many may follow the prompt, 0 for any number; only the relaxed form reads it.
    ** A failure may leave a state, which the caller frees. */
    tl_status (*create)(const tl_tensor *t, const tl_tensor *gamma, tl_recurrence_kind kind,
                        int64_t b, int64_t positions, void **out_state);
    /* The next n positions, x and y [b,n,d]; y may be x. */
    tl_status (*step)(void *state, const float *x, float *y, int64_t n);
    void (*reset)(void *state);
    tl_status (*fork)(const void *state, void **out_state);
    void (*release)(void *state);
    /* Sets the members that depend on the form. */
    void (*sizes)(const void *state, tl_recurrence_size *out_size);
    /* As tl_recurrence_modes; NULL: it has none. */
    tl_status (*modes)(const void *state, tl_tensor **out_b, tl_tensor **out_lambda,
                       tl_tensor **out_decay);
    /* The state begins with a tl_lane_state. Sets rows, modes and inputs, by which the kernel of a
    ** device steps it. NULL: another state, which the CPU steps. */
    void (*job)(const void *state, tl_lane_job *out);
} tl_recurrence_form;

extern const tl_recurrence_form tl_ring_form, tl_etsc_form, tl_relaxed_form;

/* What the arguments of TL_OP_recurrence request of a form in lanes. */
struct tl_args;
TL_PRIVATE tl_lane_job tl_recurrence_job(const struct tl_args *a);

/* Makes the state of etsc from b [modes,d,2] and decay [d], which are on the CPU. */
tl_status tl_etsc_from_modes(const tl_tensor *b, const tl_tensor *decay, tl_recurrence_kind kind,
                             int64_t period, int64_t sequences, void **out_state);

#endif
