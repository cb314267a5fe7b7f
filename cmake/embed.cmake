# embed.cmake - writes the text file IN as a C array named NAME, ended by a zero, to OUT. The array
# holds numbers, because a C11 compiler need not accept string literals of more than 4095 bytes.
file(READ ${IN} HEX_TEXT HEX)
string(REGEX REPLACE "(................................)" "\\1\n" HEX_TEXT "${HEX_TEXT}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," BYTES "${HEX_TEXT}")
file(WRITE ${OUT} "/* made from ${NAME} by cmake/embed.cmake */\nstatic const char ${NAME}[] = {\n${BYTES}\n0};\n")
