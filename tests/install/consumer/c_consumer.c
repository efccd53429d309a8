/* The same as consumer.cpp through the C interface. The library finds the data beside itself. */
#include <perfmodel.h>
#include <stdio.h>

int main(void) {
  static const char* const gpus[] = {"v100-sxm2-32gb"};
  perfmodel_config config = {.struct_size = sizeof config, .gpus = gpus, .gpu_count = 1};
  perfmodel_model model = {.struct_size = sizeof model, .family = "dlrm", .preset = "default"};
  perfmodel_totals totals = {.struct_size = sizeof totals};
  perfmodel_predictor* predictor = NULL;
  perfmodel_graph* graph = NULL;
  perfmodel_error error;
  const int failed =
      perfmodel_predictor_load(PERFMODEL_C_API_VERSION, &config, &predictor, &error) ||
      perfmodel_graph_build(&model, &graph, &error) ||
      perfmodel_predict(predictor, graph, gpus[0], NULL, &totals, &error);
  if (failed) {
    fprintf(stderr, "%s\n", error.message);
  } else {
    printf("%s: e2e %.1f us, GPU busy %.1f us\n", gpus[0], totals.e2e_us, totals.gpu_active_us);
  }
  perfmodel_graph_free(graph);
  perfmodel_predictor_free(predictor);
  return failed;
}
