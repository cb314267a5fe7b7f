-- base/direction.lua: decides whether lower or higher values of a metric are better.
--
-- The declaration of an experiment (its field `better`, the tables that it answers) takes
-- precedence. Otherwise the last known word of the metric's name decides: a recall_error is an
-- error. A name like accuracy_drop, or one without such a word, has no known direction; to decide
-- by it is an error, not a guess.
local errors = require "toeplab.base.errors"

local direction = {}

local words = {} -- word -> "lower", "higher", or false: a name with it has no direction

local function learn(better, list)
  for word in list:gmatch "%S+" do words[word] = better end
end

learn("higher", [[acc accuracy accuracies f1 bleu rouge auc auroc auprc mrr ndcg iou dice psnr ssim
  r2 reward recall precision correct matthews mcc pearson spearman kendall throughput speedup]])
learn("lower", [[loss losses ppl perplexity bit bits bpc bpb nat nats nll entropy error errors err
  mse rmse mae wer cer fid seconds milliseconds latency kib mib gib]])
learn(false, [[change delta difference drop gain gap growth improvement ratio reduction saved scale
  std variance weight]])

-- Returns "lower" or "higher"; nil if unknown. declared: metric -> "lower" or "higher", or nil; an
-- entry for a metric also applies to metric@LENGTH.
function direction.of(declared, metric)
  local own = declared and (declared[metric] or declared[metric:match "^[^@]*"])
  if own then return own end
  local better
  for word in metric:lower():gsub("per_second", "throughput"):gmatch "%w+" do
    local known = words[word]
    if known == nil then known = words[word:match "^%a+"] end -- acc5
    if known == false then return nil end
    better = known or better
  end
  return better
end

-- Like direction.of, but raises a usage error if unknown. who: the beginning of the message;
-- instead: an alternative for the user, or nil.
function direction.needed(declared, metric, who, instead)
  local name = metric:find "^[%a_][%w_]*$" and metric or ("[%q]"):format(metric)
  return direction.of(declared, metric)
    or errors.usage("%s: it is unknown whether lower or higher values of '%s' are better: declare "
      .. "better = { %s = \"higher\" } (or \"lower\") in the experiment%s", who, metric, name,
      instead and ", or give " .. instead or "")
end

return direction
