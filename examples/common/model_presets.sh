# Sourced by the recipes. From MODEL_PATH and BACKEND: what a model family needs, as MODEL_... .
#
#   MODEL_TP, MODEL_PP    Megatron's layout for 8 GPUs; TP divides the key-value heads
#   MODEL_KIND            instruct | reasoning: the latter thinks aloud, in long responses
#   MODEL_AGENT           the agent loop that the model can search with
#   MODEL_TEMPLATE        overrides for its chat template
# shellcheck shell=bash disable=SC2034

MODEL_PP=1
MODEL_KIND=instruct
MODEL_AGENT=search_r1_agent
MODEL_TEMPLATE=()
case ${MODEL_PATH,,} in
*r1-distill-qwen-1.5b*) MODEL_TP=1 MODEL_KIND=reasoning ;;
*r1-distill-qwen-7b*) MODEL_TP=4 MODEL_KIND=reasoning ;;
*llama-3.2-3b*)
    MODEL_TP=2
    # Its template writes today's date into the prompt, unless it is given one.
    MODEL_TEMPLATE=(+data.apply_chat_template_kwargs.date_string="'26 Jul 2024'")
    ;;
*qwen2.5-7b-instruct*) MODEL_TP=4 MODEL_AGENT=search_tool_agent ;;
*qwen2.5-7b*) MODEL_TP=4 ;;
*) MODEL_TP=1 ;;
esac
if [ "$BACKEND" = fsdp ]; then MODEL_TP=1; fi
