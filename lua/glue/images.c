/* images.c - sets of grey images, and the generator of Pathfinder, in Lua. */
#include "rows.h"

static void release_images(glue_box *b) { tl_images_free(b->as.images); }

#define IMAGES BOXED(tl_images, set, glue_images_class, images)

GLUE_NEW(new_images, TEXT(pixels, bytes) INTEGER(size), glue_images_class,
         tl_images_new(glue_ctx(L), pixels, bytes, size, &b->as.images))

/* images_open(path, {offset=, stride=, count=, size=}) */
static int open_images(lua_State *L)
{
    static const char *const known[] = {"offset", "stride", "count", "size", NULL};
    const char *path = luaL_checkstring(L, 1);
    int64_t given[4];
    glue_known(L, 2, known);
    for (int i = 0; i < 4; i++) given[i] = glue_integer_field(L, 2, known[i], NULL);
    glue_box *b = glue_push(L, &glue_images_class);
    glue_check(L, tl_images_open(glue_ctx(L), path, given[0], given[1], given[2], given[3],
                                 &b->as.images));
    return 1;
}

GLUE_CALL(count, IMAGES, lua_pushinteger(L, tl_images_count(set)))
GLUE_CALL(size, IMAGES, lua_pushinteger(L, tl_images_size(set)))
GLUE_FUNCTION(batch, IMAGES TENSOR(index), tl_images_batch(set, index, y))

/* images:bytes(i) -> the pixels of image i, from 0, as a string */
static int bytes(lua_State *L)
{
    int arg = 0;
    IMAGES
    lua_Integer i = luaL_checkinteger(L, 2);
    luaL_Buffer pixels;
    size_t size = (size_t)tl_images_size(set);
    if (i < 0 || i >= tl_images_count(set))
        glue_argerror(L, 2, "index %I is not in 0..%I", (LUAI_UACINT)i,
                      (LUAI_UACINT)(tl_images_count(set) - 1));
    uint8_t *to = (uint8_t *)luaL_buffinitsize(L, &pixels, size);
    glue_check(L, tl_images_pixels(set, i, to));
    luaL_pushresultsize(&pixels, size);
    return 1;
}

GLUE_CALL(interleaved, IMAGES INTEGER(channels),
          glue_check(L, tl_images_interleaved(set, channels)); lua_pushvalue(L, 1))

/* images_alter(ids, {channels=, height=, width=}, operations, amounts, fill) */
static int alter(lua_State *L)
{
    static const char *const known[] = {"channels", "height", "width", NULL};
    int64_t given[3];
    tl_tensor *ids = glue_tensor(L, 1);
    glue_known(L, 2, known);
    for (int i = 0; i < 3; i++) given[i] = glue_integer_field(L, 2, known[i], NULL);
    tl_tensor *operations = glue_tensor(L, 3), *amounts = glue_tensor(L, 4);
    tl_tensor *fill = glue_tensor(L, 5), **altered = glue_push_tensor(L);
    return glue_result(L, tl_images_alter(ids, given[0], given[1], given[2], operations, amounts,
                                          fill, altered));
}

/* pathfinder{size=, seed=, count= [, first=]}: images, labels, facts, paths */
static int pathfinder(lua_State *L)
{
    static const char *const known[] = {"size", "seed", "count", "first", NULL};
    const int64_t zero = 0;
    glue_known(L, 1, known);
    tl_pathfinder o = {
        .bytes = sizeof o,
        .size = glue_integer_field(L, 1, "size", NULL),
        .seed = (uint64_t)glue_integer_field(L, 1, "seed", NULL),
        .count = glue_integer_field(L, 1, "count", NULL),
        .first = glue_integer_field(L, 1, "first", &zero),
    };
    glue_box *b = glue_push(L, &glue_images_class);
    tl_tensor **labels = glue_push_tensor(L), **facts = glue_push_tensor(L);
    tl_tensor **paths = glue_push_tensor(L);
    glue_check(L, tl_pathfinder_draw(glue_ctx(L), &o, &b->as.images, labels, facts, paths));
    return 4;
}

static const luaL_Reg methods[] = {
    {"count", count}, {"size", size}, {"batch", batch}, {"bytes", bytes},
    {"interleaved", interleaved}, {NULL, NULL},
};

const glue_class glue_images_class = {"toeplab.images", release_images, methods, NULL};

const luaL_Reg glue_images_functions[] = {
    {"images", new_images},
    {"images_open", open_images},
    {"images_alter", alter},
    {"pathfinder", pathfinder},
    {NULL, NULL},
};
