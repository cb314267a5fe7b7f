/* intern.c - numbers distinct byte strings in the order of their addition, by an open hash table
** over one block that holds all strings. */
#include <string.h>

#include "base/memory.h"
#include "text/intern.h"

struct tl_intern_slot {
    uint32_t hash;
    int32_t id; /* -1: empty */
};

/* Hashes eight bytes at a time by multiplying and folding, because most strings are short words. */
static uint32_t hash_of(const char *s, size_t bytes)
{
    uint64_t h = bytes * 0x9e3779b97f4a7c15u, part;
    for (; bytes >= 8; bytes -= 8, s += 8) {
        memcpy(&part, s, 8);
        h = (h ^ part) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    part = 0;
    if (bytes) memcpy(&part, s, bytes);
    h = (h ^ part) * 0xff51afd7ed558ccdu;
    h ^= h >> 29;
    return (uint32_t)((h * 0xc4ceb9fe1a85ec53u) >> 32);
}

static int intern_same(const tl_intern *t, int32_t id, const char *s, size_t bytes)
{
    size_t start = t->starts[id];
    return t->starts[id + 1] - start == bytes &&
           (!bytes || memcmp(t->bytes + start, s, bytes) == 0);
}

/* Returns the hash slot of s, or the empty slot where it belongs. */
static struct tl_intern_slot *intern_look(const tl_intern *t, uint32_t hash, const char *s,
                                          size_t bytes)
{
    size_t i = hash & (t->slot_count - 1);
    while (t->slots[i].id >= 0 &&
           (t->slots[i].hash != hash || !intern_same(t, t->slots[i].id, s, bytes)))
        i = (i + 1) & (t->slot_count - 1);
    return &t->slots[i];
}

static tl_status intern_rehash(tl_intern *t, size_t count)
{
    struct tl_intern_slot *old = t->slots;
    size_t old_count = t->slot_count;
    struct tl_intern_slot *slots = tl_alloc(t->ctx, count * sizeof *slots);
    if (!slots) return TL_ENOMEM;
    memset(slots, 0xff, count * sizeof *slots);
    for (size_t i = 0; i < old_count; i++) {
        if (old[i].id < 0) continue;
        size_t at = old[i].hash & (count - 1);
        while (slots[at].id >= 0) at = (at + 1) & (count - 1);
        slots[at] = old[i];
    }
    t->slots = slots;
    t->slot_count = count;
    tl_release(t->ctx, old);
    return TL_OK;
}

tl_status tl_intern_add(tl_intern *t, const char *s, size_t bytes, int32_t *out_id)
{
    tl_status st = TL_OK;
    size_t next = (size_t)t->count + 1;
    if (2 * next > t->slot_count)
        st = intern_rehash(t, t->slot_count ? 2 * t->slot_count : 1 << 10);
    if (st != TL_OK) return st;
    uint32_t hash = hash_of(s, bytes);
    struct tl_intern_slot *slot = intern_look(t, hash, s, bytes);
    if (slot->id >= 0) {
        *out_id = slot->id;
        return TL_OK;
    }
    if (next >= INT32_MAX) return tl_fail(t->ctx, TL_ENOMEM, "more than 2^31 different strings");
    st = tl_grow(t->ctx, &t->bytes, &t->bytes_cap, t->used + bytes, 1);
    if (st == TL_OK) st = tl_grow(t->ctx, &t->starts, &t->starts_cap, next + 1, sizeof *t->starts);
    if (st != TL_OK) return st;
    if (bytes) memcpy(t->bytes + t->used, s, bytes);
    t->starts[t->count] = t->used;
    t->used += bytes;
    t->starts[next] = t->used;
    *slot = (struct tl_intern_slot){.hash = hash, .id = t->count++};
    *out_id = slot->id;
    return TL_OK;
}

int32_t tl_intern_find(const tl_intern *t, const char *s, size_t bytes)
{
    return t->count ? intern_look(t, hash_of(s, bytes), s, bytes)->id : -1;
}

const char *tl_intern_get(const tl_intern *t, int32_t id, size_t *out_bytes)
{
    *out_bytes = t->starts[id + 1] - t->starts[id];
    return t->bytes + t->starts[id];
}

void tl_intern_clear(tl_intern *t)
{
    if (t->count) memset(t->slots, 0xff, t->slot_count * sizeof *t->slots);
    t->count = 0;
    t->used = 0;
}

void tl_intern_free(tl_intern *t)
{
    tl_release(t->ctx, t->bytes);
    tl_release(t->ctx, t->starts);
    tl_release(t->ctx, t->slots);
    *t = (tl_intern){.ctx = t->ctx};
}
