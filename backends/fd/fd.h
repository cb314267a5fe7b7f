/* fd.h - declares the problem of the backend fd and its two implementations. */
#ifndef FD_H
#define FD_H

#include "backend.h"

typedef struct fd_problem {
    int64_t n, d, half; /* half: M */
    int     causal;
    const char *isa; /* instruction set of rac, or "auto" */
} fd_problem;

/* An implementation; it has the functions of a backend in backend.h. */
typedef struct fd_way {
    tl_status (*plan)(const tl_host *h, const fd_problem *p, void **out_plan);
    tl_status (*forward)(void *plan, const tl_tno_args *a);
    tl_status (*backward)(void *plan, const tl_tno_args *a);
    tl_status (*dense)(void *plan, const tl_tno_args *a);
    void      (*release)(void *plan);
    int64_t   (*cache_size)(void *plan); /* NULL if nothing can be cached */
} fd_way;

/* Puts channels into vector lanes (lanes.c). *out_plan is NULL after TL_OK if M has no such
** transform. */
extern const fd_way fd_lanes;
/* Works channel by channel, for any M, by the host's transforms (lines.c). */
extern const fd_way fd_lines;

/* Whether the processor supports this instruction set. */
int fd_has(const char *isa);

#endif
