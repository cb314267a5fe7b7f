/* parcels.c - sends that end later, with the tensors whose elements they read. */
#include <stdlib.h>

#include "ranks/ranks.h"

tl_status tl_ranks_post(tl_ranks *r, int to, int tag, tl_tensor *t)
{
    tl_status st = t ? tl_to_cpu(t) : TL_OK;
    if (st != TL_OK) return st;
    if (r->parcel_count == r->parcel_cap) {
        int        cap = r->parcel_cap ? 2 * r->parcel_cap : 64;
        tl_parcel *grown = realloc(r->parcels, (size_t)cap * sizeof *grown);
        if (!grown) return tl_fail(r->ctx, TL_ENOMEM, "out of memory");
        r->parcels = grown;
        r->parcel_cap = cap;
    }
    void *request = NULL;
    st = r->transport->send(r->ctx, r->group, to, tag, t ? DATA(t) : NULL, t ? t->len : 0,
                            &request);
    if (st != TL_OK) return st;
    r->parcels[r->parcel_count++] = (tl_parcel){request, t ? tl_tensor_hold(t) : NULL};
    return TL_OK;
}

tl_status tl_ranks_wait(tl_ranks *r)
{
    tl_status st = TL_OK;
    for (int i = 0; i < r->parcel_count; i++) {
        tl_status ended = r->transport->finish(r->ctx, r->parcels[i].request, NULL);
        if (st == TL_OK) st = ended;
        tl_tensor_drop(r->parcels[i].held);
    }
    r->parcel_count = 0;
    return st;
}
