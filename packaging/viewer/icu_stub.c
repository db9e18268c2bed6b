/* libicudata without data, as ICU's own "stubdata" is: a table of contents with no entries. */
#include <stdint.h>

#define JOINED(version) icudt##version##_dat
#define NAME(version) JOINED(version)

const struct {
    uint16_t header_size;
    uint8_t magic[2];
    uint16_t info_size, none;
    uint8_t big_endian, charset, char_size, reserved, format[4], format_version[4], data_version[4], padding[8];
    uint32_t entries, names;
} NAME(VERSION) = {32, {0xda, 0x27}, 20, 0, 0, 0, 2, 0, {'T', 'o', 'C', 'P'}, {1}, {0}, {0}, 0, 0};
