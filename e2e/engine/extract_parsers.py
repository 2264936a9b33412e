"""Print the names of the reasoning and tool parsers of the vLLM that runs this, as JSON.

PREFIX/bin/python e2e/engine/extract_parsers.py       (PREFIX: what `python -m engine ensure` prints)
"""

# mypy: disable-error-code="import-not-found"
import json

from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager

print(
    json.dumps(
        {
            "reasoning": sorted(ReasoningParserManager.list_registered()),
            "tool": sorted(ToolParserManager.list_registered()),
        }
    )
)
