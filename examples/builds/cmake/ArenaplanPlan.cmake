# arenaplan_plan(TARGET MODEL [PREFIX name] [OPTIONS option...] [BASELINE plan.json MAX_GROWTH 1%])
#
# Plans MODEL when it changes, writes the plan as a C header, and makes the header's directory an include
# directory of TARGET. With BASELINE the build fails once the arena has grown by more than MAX_GROWTH.
#
#   add_executable(firmware main.c)
#   arenaplan_plan(firmware nets/digits.json PREFIX digits OPTIONS --batch 8 --capacity 24MiB)
#
#   #define DIGITS_IMPLEMENTATION        /* in one source file */
#   #include "digits.plan.h"
#
# ARENAPLAN names the command, if it is not on the path.

find_program(ARENAPLAN arenaplan REQUIRED)

function(arenaplan_plan target model)
  cmake_parse_arguments(PARSE_ARGV 2 GIVEN "" "PREFIX;BASELINE;MAX_GROWTH" "OPTIONS")
  if(GIVEN_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "arenaplan_plan does not know ${GIVEN_UNPARSED_ARGUMENTS}")
  endif()
  get_filename_component(model "${model}" ABSOLUTE)
  get_filename_component(stem "${model}" NAME_WE)
  if(NOT GIVEN_PREFIX)
    string(MAKE_C_IDENTIFIER "${stem}" GIVEN_PREFIX)
  endif()
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/arenaplan/${target}")
  set(plan "${folder}/${stem}.plan.json")
  set(header "${folder}/${stem}.plan.h")
  file(MAKE_DIRECTORY "${folder}")
  set(check "")
  if(GIVEN_BASELINE)
    get_filename_component(baseline "${GIVEN_BASELINE}" ABSOLUTE)
    set(check COMMAND "${ARENAPLAN}" diff "${baseline}" "${plan}" --max-growth "${GIVEN_MAX_GROWTH}")
  endif()
  add_custom_command(
    OUTPUT "${header}" "${plan}"
    COMMAND "${ARENAPLAN}" plan "${model}" ${GIVEN_OPTIONS} -o "${plan}"
    ${check}
    COMMAND "${ARENAPLAN}" export "${plan}" --to c-header --prefix "${GIVEN_PREFIX}" -o "${header}"
    DEPENDS "${model}" ${baseline}
    COMMENT "Planning the memory of ${stem}"
    VERBATIM)
  target_sources("${target}" PRIVATE "${header}")
  target_include_directories("${target}" PRIVATE "${folder}")
endfunction()
