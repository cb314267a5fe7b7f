-- base/line.lua: line(u, v) returns the slope and the height at 0 of the straight line through the
-- points (u[i], v[i]) by least squares; nil if all u are equal or there are fewer than two points.

return function(u, v)
  local n, mu, mv, suu, suv = #u, 0.0, 0.0, 0.0, 0.0 -- the means are distances from the first point
  for i = 1, n do mu, mv = mu + (u[i] - u[1]) / n, mv + (v[i] - v[1]) / n end
  for i = 1, n do -- from the means, since squares of large values would hide their distances
    local du = u[i] - u[1] - mu
    suu, suv = suu + du * du, suv + du * (v[i] - v[1] - mv)
  end
  if n < 2 or not (suu > 0) then return nil end
  local slope = suv / suu
  return slope, v[1] + mv - slope * (u[1] + mu)
end
