-- toeplab-dev-1.rockspec - `luarocks --lua-version 5.4 make` in a checkout builds the library and the
-- program and installs them as a rock (docs/packages.md). The headers of the packages that `./lab
-- packages` prints must be installed. TOEPLAB_CMAKE has more options for cmake, as for lab.
rockspec_format = "3.0"
package = "toeplab"
version = "dev-1"
source = { url = "." } -- only `make` in a checkout: the rock is on no server
description = {
  summary = "Tensors and Toeplitz neural operators",
  license = "MIT",
}
dependencies = { "lua ~> 5.4" }
build = {
  type = "command",
  -- LuaRocks moves lua/ and lib/ of the rock to share/lua/5.4 and lib/lua/5.4 of its tree, and bin/
  -- to bin. The library, its backends and the module core go there in one folder, lib/toeplab, so
  -- that they find one another wherever the tree is. No links: they would be copied as files.
  build_command = "cmake -S . -B build.luarocks -G Ninja -DCMAKE_BUILD_TYPE=Release"
    .. " -DCMAKE_INSTALL_PREFIX='$(PREFIX)' -DCMAKE_INSTALL_LIBDIR=lib/toeplab -DTL_LUADIR=lua"
    .. " -DTL_LUACDIR=lib -DCMAKE_INSTALL_RPATH='$ORIGIN/../lib/lua/5.4/toeplab'"
    .. " -DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON $TOEPLAB_CMAKE"
    .. " && ninja -C build.luarocks toeplab",
  install_command = "cmake --install build.luarocks --component library",
  copy_directories = { "experiments" },
}
