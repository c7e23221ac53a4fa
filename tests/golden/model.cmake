# The default model's logits and perplexity, compared with the numpy oracle.
headwater_test(golden.model SOURCES model_golden_test.cc DEPS registry model LINK golden_file LABELS model TIMEOUT 600)
headwater_test(golden.perplexity SOURCES perplexity_golden_test.cc DEPS registry model LINK golden_file LABELS model
               TIMEOUT 600)
# Every model family's logits on small random models, compared with its numpy oracle.
headwater_test(golden.families SOURCES family_golden_test.cc family_refusal_test.cc family_case.cc DEPS engine registry model scripted text LINK golden_file)
