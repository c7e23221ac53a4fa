# Text to tokens and conversations to text, compared with the Python packages tokenizers and jinja2.
add_library(json_lines STATIC json_lines.cc)
target_include_directories(json_lines PUBLIC ${CMAKE_SOURCE_DIR}/tests)
target_link_libraries(json_lines PUBLIC headwater_core headwater_boost_json)
headwater_test(golden.tokenizer SOURCES tokenizer_golden_test.cc DEPS text model LINK json_lines LABELS model)
headwater_test(golden.chat_template SOURCES chat_template_golden_test.cc DEPS text LINK json_lines)
headwater_test(golden.vocabularies SOURCES vocabularies_test.cc DEPS text model LABELS model)
headwater_test(golden.tokenizers SOURCES tokenizers_golden_test.cc tokenizer_texts.cc DEPS text model LINK json_lines LABELS model)
headwater_test(golden.chat_template_hashes SOURCES chat_template_hash_test.cc DEPS text LINK json_lines LABELS model)
